//! Outlets: cut and restore power through one trait, and return evidence that it went off.
