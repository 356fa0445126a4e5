"""Price catalogues of others, private price lists and bills, into ``offers/<provider>.csv``."""
