//! Reads a recording back: the side-car whole, the log's data on demand.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::LogError;
use super::dialect::Dialect;
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

/// A mark of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its text.
    pub text: String,
    /// A cut at this position or later has passed it.
    pub position: u64,
    /// Its number among the log's entries, from 0.
    pub entry: u64,
}

/// A recording: every command in completion order, and access to its data.
///
/// The data is read when it is asked for and never held: a log may be larger
/// than memory.
#[derive(Debug)]
pub struct Recording {
    header: IndexHeader,
    commands: Vec<Command>,
    // Numbers of the commands among the log's entries; `None` = not known.
    entries: Option<Vec<u32>>,
    marks: Vec<Mark>,
    dialect: Dialect,
    data: Data,
    trouble: OnceLock<(u64, String)>,
}

#[derive(Debug)]
enum Data {
    File(File, PathBuf, u64),
    Memory(Vec<u8>),
}

impl Recording {
    /// Opens a finished recording of our own. Its marks are not read: see
    /// `import` for that.
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
        let length = file.metadata().map_err(io)?.len();
        let recording = Recording {
            header,
            commands,
            entries: None,
            marks: Vec::new(),
            dialect: Dialect::Plugpull,
            data: Data::File(file, log.to_owned(), length),
            trouble: OnceLock::new(),
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
            entries: None,
            marks: Vec::new(),
            dialect: Dialect::Plugpull,
            data: Data::Memory(data),
            trouble: OnceLock::new(),
        }
    }

    /// A recording read from somebody's log: `data_at` of every command points
    /// into `file`, which is `length` bytes long.
    pub(super) fn imported(
        header: IndexHeader,
        commands: Vec<Command>,
        (entries, marks): (Vec<u32>, Vec<Mark>),
        dialect: Dialect,
        (file, path, length): (File, PathBuf, u64),
    ) -> Recording {
        Recording {
            header,
            commands,
            entries: Some(entries),
            marks,
            dialect,
            data: Data::File(file, path, length),
            trouble: OnceLock::new(),
        }
    }

    fn check(&self, log: &Path) -> Result<(), LogError> {
        let length = match &self.data {
            Data::File(_, _, length) => *length,
            Data::Memory(bytes) => bytes.len() as u64,
        };
        for (entry, command) in self.commands.iter().enumerate() {
            let carries =
                matches!(command.kind, Kind::Write | Kind::WriteFua) && command.errno == 0;
            let inside = command
                .data_at
                .checked_add(command.length_bytes)
                .is_some_and(|end| end <= length);
            if carries && !inside {
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

    /// Reads the bytes of the log file at `at`: where a command's data begins
    /// plus an offset into it. A log that can no longer be read gives zeros and
    /// is remembered by [`Recording::trouble`], which has to be asked before
    /// anything that was read is relied on.
    pub fn read(&self, at: u64, out: &mut [u8]) {
        let done = match &self.data {
            Data::File(file, _, _) => file.read_exact_at(out, at).map_err(|e| e.to_string()),
            Data::Memory(bytes) => usize::try_from(at)
                .ok()
                .and_then(|start| bytes.get(start..start.checked_add(out.len())?))
                .map(|from| out.copy_from_slice(from))
                .ok_or_else(|| "beyond the end".to_owned()),
        };
        if let Err(why) = done {
            out.fill(0);
            let _ = self.trouble.set((at, why));
        }
    }

    /// Why the log could not be read, once that has happened: what was
    /// computed since is void.
    ///
    /// # Errors
    /// Names the file and the byte.
    pub fn trouble(&self) -> Result<(), LogError> {
        let Some((at, why)) = self.trouble.get() else {
            return Ok(());
        };
        let path = match &self.data {
            Data::File(_, path, _) => path.clone(),
            Data::Memory(_) => PathBuf::from("(memory)"),
        };
        let entry = self
            .commands
            .partition_point(|command| command.data_at <= *at)
            .saturating_sub(1);
        Err(LogError::Damaged {
            path,
            entry: entry as u64,
            offset: *at,
            reason: format!("its data can no longer be read: {why}"),
        })
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

    /// The number of a command among the log's entries, from 0; `None` for a
    /// command that failed or a recording that was not imported.
    #[must_use]
    pub fn entry_of(&self, command: usize) -> Option<u64> {
        let entry = *self.entries.as_ref()?.get(command)?;
        (entry != u32::MAX).then_some(u64::from(entry))
    }

    /// The marks in the log's order; empty for a recording that was not imported.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Whose log it is, which says what its order means.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}
