//! Turns a plan into operations on one stack; the engines' own recovery.
