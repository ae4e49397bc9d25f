"""Nothing at run time: see records.pyi for what is in each file of a job and in each message."""
