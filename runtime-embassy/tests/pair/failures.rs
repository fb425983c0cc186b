//! Servers and networks that fail, and what becomes of it.
