"""The scheduling queue: which unit is next, and what waiting units wait for."""
