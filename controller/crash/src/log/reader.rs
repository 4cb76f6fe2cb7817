//! Reads a recording back: the side-car whole, the log's data on demand.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use memmap2::Mmap;

use super::LogError;
use super::index::{Command, ENTRY_BYTES, IndexHeader, Kind, decode, decode_header};

/// Most entries a side-car may announce; at 64 bytes each, 4 GiB of side-car.
const MAX_ENTRIES: u64 = 64 << 20;

/// Reads a side-car.
///
/// # Errors
/// Names the file, the entry and the byte.
pub fn read_index(path: &Path) -> Result<(IndexHeader, Vec<Command>), LogError> {
    let io = |source| LogError::Io {
        what: "cannot read the side-car",
        path: path.to_owned(),
        source,
        remedy: "see that the run directory is whole and readable",
    };
    let damaged = |entry: u64, reason: String| LogError::Damaged {
        path: path.to_owned(),
        entry,
        offset: entry.saturating_mul(ENTRY_BYTES as u64),
        reason,
    };
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut bytes = [0u8; ENTRY_BYTES];
    reader
        .read_exact(&mut bytes)
        .map_err(|_| damaged(0, "the file is shorter than its header".to_owned()))?;
    let header = decode_header(&bytes).map_err(|reason| damaged(0, reason))?;
    let there = length / ENTRY_BYTES as u64 - 1;
    if header.entries > MAX_ENTRIES || header.entries > there {
        return Err(damaged(
            there,
            format!(
                "{} entries are announced and {there} are there",
                header.entries
            ),
        ));
    }
    let mut commands = Vec::with_capacity(usize::try_from(header.entries).unwrap_or(0));
    let mut last_completed = 0;
    for entry in 1..=header.entries {
        reader.read_exact(&mut bytes).map_err(io)?;
        let command = decode(&bytes).map_err(|reason| damaged(entry, reason))?;
        if command.completed < last_completed {
            return Err(damaged(entry, "it is not in completion order".to_owned()));
        }
        if command
            .offset_bytes
            .checked_add(command.length_bytes)
            .is_none_or(|end| end > header.device_bytes)
        {
            return Err(damaged(entry, "it reaches beyond the device".to_owned()));
        }
        last_completed = command.completed;
        commands.push(command);
    }
    Ok((header, commands))
}

/// A recording: every command in completion order, and access to its data.
#[derive(Debug)]
pub struct Recording {
    header: IndexHeader,
    commands: Vec<Command>,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Mapped(Mmap),
    Memory(Vec<u8>),
}

impl Recording {
    /// Opens a finished recording.
    ///
    /// # Errors
    /// Names the file, the entry and the byte.
    pub fn open(log: &Path, index: &Path) -> Result<Recording, LogError> {
        let (header, commands) = read_index(index)?;
        let io = |source| LogError::Io {
            what: "cannot read the log",
            path: log.to_owned(),
            source,
            remedy: "see that the run directory is whole and readable",
        };
        let file = File::open(log).map_err(io)?;
        // SAFETY: the file is ours and finished: it was renamed into place and
        // nothing writes to it again. Truncating a run directory under a
        // running judge is outside what any reader could survive.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let recording = Recording {
            header,
            commands,
            data: Data::Mapped(map),
        };
        recording.check(log)?;
        Ok(recording)
    }

    /// A recording made in memory; `data` is what `data_at` points into.
    #[must_use]
    pub fn from_parts(header: IndexHeader, commands: Vec<Command>, data: Vec<u8>) -> Recording {
        Recording {
            header,
            commands,
            data: Data::Memory(data),
        }
    }

    fn check(&self, log: &Path) -> Result<(), LogError> {
        for (entry, command) in self.commands.iter().enumerate() {
            let carries =
                matches!(command.kind, Kind::Write | Kind::WriteFua) && command.errno == 0;
            if carries && self.slice(command.data_at, command.length_bytes).is_none() {
                return Err(LogError::Damaged {
                    path: log.to_owned(),
                    entry: entry as u64,
                    offset: command.data_at,
                    reason: "its data lies beyond the end of the log".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn slice(&self, at: u64, length: u64) -> Option<&[u8]> {
        let bytes: &[u8] = match &self.data {
            Data::Mapped(map) => map,
            Data::Memory(bytes) => bytes,
        };
        let start = usize::try_from(at).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        bytes.get(start..end)
    }

    /// `length` bytes of the log file at `at`: where a command's data begins
    /// plus an offset into it. Empty when it is not there, which `open` rules out.
    #[must_use]
    pub fn bytes(&self, at: u64, length: u64) -> &[u8] {
        self.slice(at, length).unwrap_or_default()
    }

    /// What the side-car says of the whole.
    #[must_use]
    pub fn header(&self) -> &IndexHeader {
        &self.header
    }

    /// The commands in completion order.
    #[must_use]
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }
}
