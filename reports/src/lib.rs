//! Folds events into text, JSON and HTML.
