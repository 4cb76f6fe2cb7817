//! The nouns of Plugpull, its pure rules, and its seams as traits without I/O.
