"""Puts this folder on the path, so that tests here and below find `madeup`."""
