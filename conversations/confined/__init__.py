"""Reading files whose format is a program, such as a database, in a separate process with limits.

The library that reads such a file obeys it: it runs what the file says, opens the files that it names, and
takes the time and memory that it asks for.
"""
