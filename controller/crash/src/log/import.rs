//! Anybody's log as a [`Recording`].

use std::path::{Path, PathBuf};

use super::LogError;
use super::dialect::Dialect;
use super::entries::{Entry, EntryKind, EntryReader, LogFile, TailEnd};
use super::format::{FLAG_FUA, FLAG_MARK, FLAG_METADATA};
use super::index::{Command, ENTRY_BYTES, IndexHeader, Kind, MAGIC};
use super::reader::{Mark, Recording, read_index};
use super::table::EntryTable;

/// Most text that the marks of one log may hold together.
const MAX_MARK_TEXT_BYTES: u64 = 256 << 20;
/// The last mark of a log whose target was removed in order.
pub const END_MARK: &str = "dm-log-writes-end";
/// The number of a command that is no entry of the log.
const NO_ENTRY: u32 = u32::MAX;

/// How to read a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whose it is; `None` = guess.
    pub dialect: Option<Dialect>,
    /// Size of the device; `None` = up to the last byte that an entry touches
    /// (the side-car knows it for a log of plugpull).
    pub device_bytes: Option<u64>,
    /// Whether entries behind the announced ones are taken too.
    pub use_tail: bool,
}

/// What stands behind the entries that the super block announces.
///
/// The kernel updates the super block on FUA, on a mark and when the target is
/// removed, QEMU on some flushes: a log whose writer died goes on behind it.
/// Nothing tells such entries from the old content of a log device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Entries announced.
    pub announced: u64,
    /// Entries found, announced ones among them.
    pub found: u64,
    /// The first entry that is found and not announced.
    pub doubtful_from: Option<u64>,
    /// Whether the writer said that the log is complete: what stands behind is
    /// no part of it, and was not looked at.
    pub closed: bool,
    /// Why the scan ended.
    pub end: TailEnd,
}

/// Why a dialect was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The caller said so.
    Told,
    /// A side-car stands beside the log.
    SideCar(PathBuf),
    /// An entry has a flag, or is a mark, that QEMU never writes.
    KernelOnly {
        /// The first such entry.
        entry: u64,
        /// What it has.
        what: &'static str,
    },
    /// Marks of plugpull, and no side-car: the order is that of completion.
    SideCarMissing,
    /// Nothing tells: taken as QEMU's, of which less is promised.
    Nothing,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Told => f.write_str("as told"),
            Reason::SideCar(path) => write!(f, "the side-car {} is there", path.display()),
            Reason::KernelOnly { entry, what } => {
                write!(
                    f,
                    "guessed: entry {entry} is or has {what}, which QEMU never writes"
                )
            }
            Reason::SideCarMissing => f.write_str(
                "guessed: the marks are plugpull's and the side-car is missing, so only the \
                 order of completion is known, as in QEMU's logs",
            ),
            Reason::Nothing => f.write_str(
                "guessed: no FUA, no METADATA and no mark, so it may be QEMU's, of which less \
                 is promised; if the kernel wrote it, say so",
            ),
        }
    }
}

/// A log that was read.
#[derive(Debug)]
pub struct Imported {
    /// Its commands and marks.
    pub recording: Recording,
    /// Whose it is.
    pub dialect: Dialect,
    /// Whether that was guessed.
    pub guessed: bool,
    /// Why it is taken for that dialect's.
    pub reason: Reason,
    /// What stands behind the announced entries.
    pub tail: Tail,
    /// Bytes of a log sector.
    pub log_sector_bytes: u64,
    /// Whether the size of the device is only the end of the last entry's bytes.
    pub device_derived: bool,
    /// Flags and places of the entries.
    pub table: EntryTable,
}

impl Imported {
    /// Entries that are in the recording, marks included.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.table.entries()
    }

    /// Byte offset of an entry's header in the log; reads a few headers.
    #[must_use]
    pub fn header_of(&self, entry: u64) -> Option<u64> {
        self.table
            .header_of(entry, &self.recording, self.log_sector_bytes)
    }
}

/// The side-car of a log: its path and `.idx`.
#[must_use]
pub fn side_car(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".idx");
    PathBuf::from(name)
}

/// Reads a log.
///
/// For a log of the kernel or of QEMU an entry is submitted and completed at
/// one position, its number: a cut at `p` sees the entries below `p`. A write
/// that flushes first gives two commands of that position, the FLUSH first.
///
/// # Errors
/// Names the file, the entry, the byte and the remedy.
pub fn import(path: &Path, options: &ImportOptions) -> Result<Imported, LogError> {
    let reader = EntryReader::open(LogFile::open(path)?)?;
    let index = side_car(path);
    match options.dialect {
        Some(Dialect::Plugpull) => import_own(reader, path, &index, options, Reason::Told),
        Some(dialect) => import_foreign(reader, path, Some(dialect), options),
        None if is_side_car(&index) => {
            let reason = Reason::SideCar(index.clone());
            import_own(reader, path, &index, options, reason)
        }
        None => import_foreign(reader, path, None, options),
    }
}

/// Whether a finished side-car stands there, damaged or not.
fn is_side_car(index: &Path) -> bool {
    use std::io::Read;
    let mut first = [0u8; MAGIC.len()];
    std::fs::metadata(index).is_ok_and(|meta| meta.is_file() && meta.len() >= ENTRY_BYTES as u64)
        && std::fs::File::open(index).is_ok_and(|mut file| file.read_exact(&mut first).is_ok())
        && first == MAGIC
}

/// What one pass over a log gathers.
struct Gathered {
    commands: Vec<Command>,
    numbers: Vec<u32>,
    marks: Vec<Mark>,
    mark_text_bytes: u64,
    table: EntryTable,
    device_bytes: u64,
    kernel_only: Option<(u64, &'static str)>,
}

impl Gathered {
    fn new() -> Gathered {
        Gathered {
            commands: Vec::new(),
            numbers: Vec::new(),
            marks: Vec::new(),
            mark_text_bytes: 0,
            table: EntryTable::default(),
            device_bytes: 0,
            kernel_only: None,
        }
    }

    fn mark(&mut self, path: &Path, entry: &Entry, text: String, at: u64) -> Result<(), LogError> {
        self.mark_text_bytes += text.len() as u64;
        if self.mark_text_bytes > MAX_MARK_TEXT_BYTES {
            return Err(LogError::Entry {
                path: path.to_owned(),
                entry: entry.number,
                offset: entry.header_at,
                reason: format!("the marks hold more than {MAX_MARK_TEXT_BYTES} bytes of text"),
                remedy: "read a part of the log",
            });
        }
        self.marks.push(Mark {
            text,
            position: at,
            entry: entry.number,
        });
        Ok(())
    }

    /// One entry of a log that has no side-car.
    fn entry(&mut self, path: &Path, entry: &Entry, text: String) -> Result<(), LogError> {
        self.table.push(entry);
        let flags = u64::from(entry.flags);
        if self.kernel_only.is_none() {
            self.kernel_only = [
                (FLAG_FUA, "FUA"),
                (FLAG_MARK, "a mark"),
                (FLAG_METADATA, "METADATA"),
            ]
            .into_iter()
            .find(|(flag, _)| flags & flag != 0)
            .map(|(_, what)| (entry.number, what));
        }
        self.device_bytes = self.device_bytes.max(entry.end_bytes());
        let number = entry.number;
        let mut push = |kind: Kind, length_bytes: u64, data_at: u64| {
            self.commands.push(Command {
                kind,
                offset_bytes: entry.offset_bytes,
                length_bytes,
                submitted: number,
                completed: number,
                data_at,
                completed_ns: 0,
                errno: 0,
            });
            // Below `MAX_ENTRIES`, which fits.
            self.numbers.push(u32::try_from(number).unwrap_or(NO_ENTRY));
        };
        match entry.kind {
            EntryKind::Mark => return self.mark(path, entry, text, number + 1),
            EntryKind::Flush => push(Kind::Flush, 0, 0),
            EntryKind::Discard => push(Kind::Discard, entry.length_bytes, 0),
            EntryKind::Write { flush, fua } => {
                if flush {
                    push(Kind::Flush, 0, 0);
                }
                let kind = if fua { Kind::WriteFua } else { Kind::Write };
                push(kind, entry.length_bytes, entry.data_at);
            }
        }
        Ok(())
    }
}

fn beyond(path: &Path, entry: &Entry, device: u64) -> LogError {
    LogError::Entry {
        path: path.to_owned(),
        entry: entry.number,
        offset: entry.header_at,
        reason: format!(
            "it reaches to byte {} of a device of {device} bytes",
            entry.end_bytes()
        ),
        remedy: "give the size of the device that was recorded, or record it again",
    }
}

fn import_foreign(
    mut reader: EntryReader,
    path: &Path,
    dialect: Option<Dialect>,
    options: &ImportOptions,
) -> Result<Imported, LogError> {
    let head = reader.super_block();
    let mut gathered = Gathered::new();
    while let Some(entry) = reader.next_announced()? {
        if let Some(device) = options.device_bytes.filter(|d| entry.end_bytes() > *d) {
            return Err(beyond(path, &entry, device));
        }
        gathered.entry(path, &entry, reader.mark_text())?;
    }
    let closed = gathered
        .marks
        .last()
        .is_some_and(|mark| mark.text == END_MARK && mark.entry + 1 == head.entries);
    let mut tail = Tail {
        announced: head.entries,
        found: head.entries,
        doubtful_from: None,
        closed,
        end: TailEnd::EndOfFile,
    };
    // What stands behind a closed log is no part of it.
    if !closed {
        // Ends: each entry takes a log sector of a file that has an end.
        tail.end = loop {
            match reader.next_doubtful(options.device_bytes)? {
                Err(end) => break end,
                Ok(entry) => {
                    tail.found += 1;
                    tail.doubtful_from = Some(head.entries);
                    if options.use_tail {
                        gathered.entry(path, &entry, reader.mark_text())?;
                    }
                }
            }
        };
    }
    let (dialect, reason) = match dialect {
        Some(dialect) => (dialect, Reason::Told),
        None => guess(&gathered),
    };
    let device_bytes = options.device_bytes.unwrap_or(gathered.device_bytes);
    for command in &mut gathered.commands {
        // The place of a FLUSH means nothing: it must not lie outside.
        if command.kind == Kind::Flush && command.offset_bytes > device_bytes {
            command.offset_bytes = 0;
        }
    }
    let header = IndexHeader {
        entries: gathered.commands.len() as u64,
        device_bytes,
        base: 0,
        max_depth: 0,
    };
    let source = reader.into_source();
    Ok(Imported {
        recording: Recording::imported(
            header,
            gathered.commands,
            (gathered.numbers, gathered.marks),
            dialect,
            (source.file, source.path, source.length),
        ),
        dialect,
        guessed: reason != Reason::Told,
        reason,
        tail,
        log_sector_bytes: u64::from(head.sector_bytes),
        device_derived: options.device_bytes.is_none(),
        table: gathered.table,
    })
}

/// Whose log it is, from what is in it.
fn guess(gathered: &Gathered) -> (Dialect, Reason) {
    let marks = &gathered.marks;
    let ours = marks.iter().filter(|mark| mark.text == "base").count() == 1
        && marks
            .iter()
            .all(|mark| mark.text == "base" || is_own_acknowledgement(&mark.text));
    if ours {
        return (Dialect::Qemu, Reason::SideCarMissing);
    }
    match gathered.kernel_only {
        Some((entry, what)) => (Dialect::Kernel, Reason::KernelOnly { entry, what }),
        None => (Dialect::Qemu, Reason::Nothing),
    }
}

/// Whether a mark is `ack-<stream>-<sequence>-<version>`.
fn is_own_acknowledgement(text: &str) -> bool {
    text.strip_prefix("ack-").is_some_and(|rest| {
        let mut parts = 0;
        rest.split('-').all(|part| {
            parts += 1;
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())
        }) && parts == 3
    })
}

/// A log of plugpull: commands and positions from the side-car, marks and the
/// numbers of the entries from the log, and both have to agree.
fn import_own(
    mut reader: EntryReader,
    path: &Path,
    index: &Path,
    options: &ImportOptions,
    reason: Reason,
) -> Result<Imported, LogError> {
    if !is_side_car(index) {
        return Err(LogError::NoLog {
            path: index.to_owned(),
            offset: 0,
            reason: "no finished side-car is there".to_owned(),
            remedy: "without it a log of plugpull has the meaning of QEMU's, the order of \
                     completion: read it as qemu, or keep the side-car beside it",
        });
    }
    let (header, commands) = read_index(index)?;
    let head = reader.super_block();
    let mut gathered = Gathered::new();
    gathered.numbers = vec![NO_ENTRY; commands.len()];
    let mut next = 0;
    let mut completed = None;
    while let Some(entry) = reader.next_announced()? {
        gathered.table.push(&entry);
        if let Some(device) = options.device_bytes.filter(|d| entry.end_bytes() > *d) {
            return Err(beyond(path, &entry, device));
        }
        let disagree = |what: &str| LogError::Entry {
            path: path.to_owned(),
            entry: entry.number,
            offset: entry.header_at,
            reason: format!("{what} {}", index.display()),
            remedy: "the two do not belong together or one is damaged: read the log as qemu, or \
                     record the trial again",
        };
        if entry.kind == EntryKind::Mark {
            let text = reader.mark_text();
            let position = if text == "base" {
                header.base
            } else {
                completed.map_or(0, |last: u64| last.saturating_add(1))
            };
            gathered.mark(path, &entry, text, position)?;
            continue;
        }
        // A command that failed is in the side-car only.
        while commands.get(next).is_some_and(|c| c.errno != 0) {
            next += 1;
        }
        let Some(command) = commands.get(next) else {
            return Err(disagree("it is not in the side-car"));
        };
        if !is_same(&entry, command) {
            return Err(disagree("it is another command than in the side-car"));
        }
        gathered.numbers[next] = u32::try_from(entry.number).unwrap_or(NO_ENTRY);
        completed = Some(command.completed);
        next += 1;
    }
    if let Some(missing) = commands.iter().skip(next).find(|c| c.errno == 0) {
        return Err(LogError::Entry {
            path: path.to_owned(),
            entry: head.entries,
            offset: reader.position(),
            reason: format!(
                "the log ends and the side-car {} goes on with a {} at event {}",
                index.display(),
                missing.kind.name(),
                missing.completed
            ),
            remedy: "the two do not belong together: record the trial again",
        });
    }
    let source = reader.into_source();
    Ok(Imported {
        recording: Recording::imported(
            header,
            commands,
            (gathered.numbers, gathered.marks),
            Dialect::Plugpull,
            (source.file, source.path, source.length),
        ),
        dialect: Dialect::Plugpull,
        guessed: reason != Reason::Told,
        reason,
        tail: Tail {
            announced: head.entries,
            found: head.entries,
            doubtful_from: None,
            closed: true,
            end: TailEnd::EndOfFile,
        },
        log_sector_bytes: u64::from(head.sector_bytes),
        device_derived: false,
        table: gathered.table,
    })
}

/// Whether an entry of the log is this command of the side-car.
fn is_same(entry: &Entry, command: &Command) -> bool {
    let kind = match command.kind {
        Kind::Write | Kind::WriteZeroes => EntryKind::Write {
            flush: false,
            fua: false,
        },
        Kind::WriteFua => EntryKind::Write {
            flush: false,
            fua: true,
        },
        Kind::Discard => EntryKind::Discard,
        Kind::Flush => EntryKind::Flush,
    };
    entry.kind == kind
        && entry.length_bytes == command.length_bytes
        && (entry.length_bytes == 0 || entry.offset_bytes == command.offset_bytes)
        && entry.data_at == command.data_at
}
