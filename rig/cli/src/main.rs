//! The `plugpull` binary.

fn main() {}
