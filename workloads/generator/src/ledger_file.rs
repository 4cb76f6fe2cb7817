//! The ledger on disk: JSON lines, the header first, the completion last.

use std::io::{self, BufRead, Read, Write};

use plugpull_model::ledger::{LEDGER_SCHEMA, Ledger, LedgerLine, MAX_LEDGER_LINE_BYTES};
use plugpull_model::units::Position;

use crate::ReadLedgerError;

/// The longest reason that an error repeats from a ledger it could not read.
const MAX_REASON_CHARS: usize = 160;

/// Writes a ledger. Lines reach the writer whole and in order; making them durable is the business
/// of whoever opened it.
pub struct LedgerFile {
    out: Box<dyn Write + Send>,
    text: Vec<u8>,
}

impl LedgerFile {
    /// Starts a ledger with its header.
    ///
    /// # Errors
    /// The writer's error.
    pub fn create(out: impl Write + Send + 'static) -> io::Result<Self> {
        let mut file = Self {
            out: Box::new(out),
            text: Vec::new(),
        };
        file.append(&[LedgerLine::Header {
            schema: LEDGER_SCHEMA,
        }])?;
        Ok(file)
    }

    /// Adds these lines with one write.
    ///
    /// # Errors
    /// The writer's error.
    pub fn append(&mut self, lines: &[LedgerLine]) -> io::Result<()> {
        self.text.clear();
        for line in lines {
            serde_json::to_writer(&mut self.text, line)?;
            self.text.push(b'\n');
        }
        self.out.write_all(&self.text)
    }

    /// Says that every operation of the trial is here, as the last line, and flushes the writer.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(mut self, at: Position) -> io::Result<()> {
        self.append(&[LedgerLine::Complete { at }])?;
        self.out.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a ledger, whatever the bytes are.
///
/// A last line without its line feed is dropped, even one that looks whole; a ledger of no whole
/// line is empty. Both only weaken a verdict.
///
/// # Errors
/// Names the first line that is too long, is not a line of a ledger, contradicts an earlier one, or
/// follows the completion; or the reader's error.
pub fn read_ledger(mut input: impl BufRead) -> Result<Ledger, ReadLedgerError> {
    let mut ledger = Ledger::default();
    let mut complete = false;
    let mut text = Vec::with_capacity(256);
    for line in 1.. {
        text.clear();
        // One byte more than a line may have: its line feed, or the proof that it is too long.
        (&mut input)
            .take(MAX_LEDGER_LINE_BYTES as u64 + 1)
            .read_until(b'\n', &mut text)
            .map_err(|source| ReadLedgerError::Io { line, source })?;
        if text.pop_if(|last| *last == b'\n').is_none() {
            if text.len() > MAX_LEDGER_LINE_BYTES {
                return Err(ReadLedgerError::TooLong { line });
            }
            break;
        }
        let not_a_line = |reason: String| Err(ReadLedgerError::NotALine { line, reason });
        if complete {
            return not_a_line("it follows the line that says the ledger is complete".to_owned());
        }
        let entry: LedgerLine = match serde_json::from_slice(&text) {
            Ok(entry) => entry,
            Err(error) => return not_a_line(reason(&error)),
        };
        if line == 1 && !matches!(entry, LedgerLine::Header { .. }) {
            return not_a_line("a ledger begins with its header".to_owned());
        }
        complete = matches!(entry, LedgerLine::Complete { .. });
        ledger.push(entry)?;
    }
    Ok(ledger)
}

/// The parser's words without its own count of lines, on one line and bounded: they may repeat
/// what a stranger wrote.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let words = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(words, _)| words);
    let words: String = words.escape_debug().take(MAX_REASON_CHARS).collect();
    format!("{words} (column {})", error.column())
}
