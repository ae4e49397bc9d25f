"""SSH into a running job: the real client, and a server beside the job's command.

names    what a job is called there
keys     made on this machine, for one job
config   what ssh has to know, and where it looks for it
proxy    what ssh starts to reach the server
"""
