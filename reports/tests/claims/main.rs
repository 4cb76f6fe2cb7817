//! What the reports claim, each as a test.

mod fold;
mod html;
mod json;
mod read;
mod real;
mod samples;
mod table;
