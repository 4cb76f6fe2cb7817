//! What the reports claim, each as a test.

mod fold;
mod html;
mod json;
mod read;
mod samples;
mod table;
