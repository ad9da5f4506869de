"""Soaks: long random loads on real servers and engines, with kills and floods, in search of leaks and errors."""
