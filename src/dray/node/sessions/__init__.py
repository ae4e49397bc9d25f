"""The way into a running job: processes, terminals and ports of its node, over one connection.

    frames      what is said, one frame at a time
    ready       waiting for whatever comes first
    link        one end of a connection: channels, their credit, a sign of life; the same on both
    ends        what a channel ends in: files, sockets, datagrams
    door        a listening socket beside the command, which starts a server for who knocks
    server      the node's side, a process beside the command
    programs    processes and terminals that it starts
    sshd        an SSH server among these, for one connection
    commands    the commands of sessions, by which they are known from jobs
    holding     a session: a job whose command waits while people work beside it
    idleness    whether anything has happened lately
    surroundings  what these see
    edits       edits of the laptop, put into the work tree of a session
    receiving   the channel on which they come
    messages    records with content on a channel
    listening   ports of the node that lead to the laptop
    entering    what the laptop starts on a login node, to be led to the door
    relay       the last piece of that way
    detours     ways to the door where the scheduler leads nobody there
    calls       how a job is asked to come out to the login node
    calling     the login node's side of that, and ...
    dialing     ... the job's
    proof       how each of the two proves to be the one that is meant

The two ends do not trust each other: whatever comes is checked, and everything is bounded.
"""
