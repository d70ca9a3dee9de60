"""How many files of the product a change passes through, counted in the processes of a real one."""
