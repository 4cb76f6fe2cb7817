//! Folds events into text, JSON and HTML.
//!
//! Every report is a pure fold: [`Report::fold`] takes one event after the
//! other, and [`Report::to_table`], [`Report::to_json`] and [`Report::to_html`]
//! only print what was folded. There is no clock, no file and no process here.
//! The fields of `report.json` are in `reports/SCHEMA.md`.

mod cutter;
mod fold;
mod html;
mod json;
mod layout;
mod read;
mod settings;
mod table;
mod view;
mod words;

pub use fold::Report;
pub use json::REPORT_SCHEMA;
pub use read::{EventsFile, MAX_LINE_BYTES, ReportError, read_events, read_events_file};
pub use table::Style;
pub use words::{explanation_in_words, finding_in_words};
