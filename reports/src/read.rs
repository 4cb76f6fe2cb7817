//! Reads `events.jsonl`: one event a line, appended while the run went on.

use std::io::{self, BufRead, Read};

use plugpull_model::event::{EVENTS_SCHEMA, Event};

/// Longest line that is read. The longest honest one, the start of a run with
/// the most cells a plan may hold, stays well below it.
pub const MAX_LINE_BYTES: u64 = 4 << 20;

/// Why `events.jsonl` cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Reading failed.
    #[error(
        "events.jsonl line {line}: cannot be read ({source}); check the run directory's disk and permissions"
    )]
    Read {
        /// The line, from 1.
        line: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A line above [`MAX_LINE_BYTES`].
    #[error("events.jsonl line {line}: longer than {MAX_LINE_BYTES} bytes, which no event is; keep what stands before it with `head -n {} events.jsonl`", line.saturating_sub(1))]
    LineTooLong {
        /// The line, from 1.
        line: u64,
    },
    /// A line, not the last, that is no event.
    #[error("events.jsonl line {line}: not an event ({why}); restore the file, or keep what stands before it with `head -n {} events.jsonl`", line.saturating_sub(1))]
    Garbage {
        /// The line, from 1.
        line: u64,
        /// What the parser said.
        why: String,
    },
    /// The first event does not begin a run.
    #[error(
        "events.jsonl line {line}: the run's start is missing; restore the file, or run the scenario again into a new directory"
    )]
    NoStart {
        /// The line, from 1.
        line: u64,
    },
    /// The events have a schema that this version does not know.
    #[error(
        "events.jsonl line {line}: schema {found} is not known, this version reads {EVENTS_SCHEMA}; use the version of plugpull that wrote it"
    )]
    Schema {
        /// The line, from 1.
        line: u64,
        /// The schema it names.
        found: u32,
    },
    /// Events of two runs in one file.
    #[error(
        "events.jsonl line {line}: a second run ({second}) begins in the file of run {first}; split the file before this line"
    )]
    SecondRun {
        /// The line, from 1.
        line: u64,
        /// The run that the file began with.
        first: String,
        /// The other.
        second: String,
    },
}

/// What [`read_events_file`] read.
#[derive(Debug)]
pub struct EventsFile {
    /// The events in order.
    pub events: Vec<Event>,
    /// Bytes up to the end of the last whole event, its newline included where
    /// it has one. A run that goes on cuts the file here before it appends.
    pub whole_bytes: u64,
    /// Whether the last whole event ends with a newline; if not, one has to be
    /// written before the next event.
    pub ends_with_newline: bool,
}

/// Reads the events of a run. A half last line, which a killed run leaves
/// behind, is dropped.
///
/// # Errors
/// Names the line and the remedy for anything else that is no event.
pub fn read_events(reader: impl BufRead) -> Result<Vec<Event>, ReportError> {
    read_events_file(reader).map(|file| file.events)
}

/// [`read_events`], with the place at which a resumed run goes on.
///
/// # Errors
/// As [`read_events`].
pub fn read_events_file(mut reader: impl BufRead) -> Result<EventsFile, ReportError> {
    let mut file = EventsFile {
        events: Vec::new(),
        whole_bytes: 0,
        ends_with_newline: true,
    };
    let mut run: Option<String> = None;
    let mut read_bytes: u64 = 0;
    let mut bytes = Vec::new();
    for line in 1u64.. {
        bytes.clear();
        reader
            .by_ref()
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut bytes)
            .map_err(|source| ReportError::Read { line, source })?;
        if bytes.is_empty() {
            break;
        }
        if bytes.len() as u64 > MAX_LINE_BYTES {
            return Err(ReportError::LineTooLong { line });
        }
        read_bytes += bytes.len() as u64;
        let terminated = bytes.last() == Some(&b'\n');
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let event = match serde_json::from_slice::<Event>(&bytes) {
            Ok(event) => event,
            Err(_) if !terminated => break,
            Err(error) => {
                return Err(ReportError::Garbage {
                    line,
                    why: error.to_string(),
                });
            }
        };
        check_run(&event, line, &mut run)?;
        file.events.push(event);
        file.whole_bytes = read_bytes;
        file.ends_with_newline = terminated;
    }
    Ok(file)
}

/// One file holds one run, from its start, in a schema that is known.
fn check_run(event: &Event, line: u64, run: &mut Option<String>) -> Result<(), ReportError> {
    match (event, run.as_ref()) {
        (Event::RunStarted { schema, .. }, _) if *schema != EVENTS_SCHEMA => {
            Err(ReportError::Schema {
                line,
                found: *schema,
            })
        }
        (Event::RunStarted { run: second, .. }, Some(first)) if second != first => {
            Err(ReportError::SecondRun {
                line,
                first: first.clone(),
                second: second.clone(),
            })
        }
        (Event::RunStarted { run: id, .. }, _) => {
            *run = Some(id.clone());
            Ok(())
        }
        (_, None) => Err(ReportError::NoStart { line }),
        (_, Some(_)) => Ok(()),
    }
}
