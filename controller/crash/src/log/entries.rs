//! Streams the entries of a dm-log-writes version 1 log, whoever wrote it.
//!
//! Nothing that the log says is trusted: no allocation is sized by it, every
//! step goes forward by a log sector at least, and what cannot be is refused
//! with its entry, its byte and the remedy.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::LogError;
use super::format::{
    ENTRY_HEADER_BYTES, EntryHeader, FLAG_DISCARD, FLAG_FLUSH, FLAG_FUA, FLAG_MARK, FLAG_METADATA,
    MAGIC, VERSION, decode_entry,
};
use super::index::MAX_COMMAND_BYTES;

/// Smallest log sector: the kernel's own sector.
pub const MIN_SECTOR_BYTES: u32 = 512;
/// Largest log sector: the kernel takes the logical block of the device, which
/// is a page at most, and no page is larger than this.
pub const MAX_SECTOR_BYTES: u32 = 64 << 10;
/// Most entries of one log.
pub const MAX_ENTRIES: u64 = 64 << 20;
/// Headers are read through a window of this size, or of one log sector.
const WINDOW_BYTES: usize = 16 << 10;
/// Files end before this.
const MAX_OFFSET: u64 = i64::MAX as u64;

const RECORD_AGAIN: &str = "the file is damaged or cut off: copy or record it again";
const NOT_A_LOG: &str = "give the log of dm-log-writes, of QEMU's blklogwrites or of plugpull";

/// What the super block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperBlock {
    /// Entries, marks included. Behind what was written when the writer died.
    pub entries: u64,
    /// Bytes of a log sector, a power of two.
    pub sector_bytes: u32,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A write with its data.
    Write {
        /// It flushes first: what stands before it is covered.
        flush: bool,
        /// Force unit access.
        fua: bool,
    },
    /// A flush without data.
    Flush,
    /// A discard.
    Discard,
    /// A mark.
    Mark,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, from 0.
    pub number: u64,
    /// Byte offset of its header in the log.
    pub header_at: u64,
    /// What it is.
    pub kind: EntryKind,
    /// The flags as they stand in the log: FLUSH 1, FUA 2, DISCARD 4, MARK 8,
    /// METADATA 16.
    pub flags: u8,
    /// First byte on the device; of a FLUSH, whatever the log says.
    pub offset_bytes: u64,
    /// Length on the device in bytes; 0 for FLUSH and marks.
    pub length_bytes: u64,
    /// Byte offset of its data in the log; 0 when it has none.
    pub data_at: u64,
    /// Byte offset of the next entry.
    pub next_at: u64,
}

impl Entry {
    /// First byte on the device behind it; 0 when it touches none.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        if self.length_bytes == 0 {
            return 0;
        }
        // Checked when the entry was read.
        self.offset_bytes.saturating_add(self.length_bytes)
    }
}

/// Why the scan behind the announced entries ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEnd {
    /// Nothing stands behind them.
    EndOfFile,
    /// A header of zeros: nothing was ever written there, as far as can be told.
    Zeros {
        /// Its byte offset.
        offset: u64,
    },
    /// What stands there is no entry: old content, or an entry cut off.
    Implausible {
        /// Its byte offset.
        offset: u64,
        /// Why it is none.
        reason: String,
    },
}

/// The file or block device that holds a log.
#[derive(Debug)]
pub struct LogFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Size in bytes when it was opened.
    pub(super) length: u64,
}

impl LogFile {
    /// Opens a regular file or a block device for reading.
    ///
    /// # Errors
    /// The operating system's error, or that it is neither.
    pub fn open(path: &Path) -> Result<LogFile, LogError> {
        let io = |source| LogError::Io {
            what: "cannot read the log",
            path: path.to_owned(),
            source,
            remedy: "see that the path is right and readable",
        };
        // Opening a FIFO must not wait for somebody to write to it.
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(io)?;
        let kind = file.metadata().map_err(io)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(LogError::NoLog {
                path: path.to_owned(),
                offset: 0,
                reason: "it is neither a regular file nor a block device".to_owned(),
                remedy: NOT_A_LOG,
            });
        }
        let length = file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok(LogFile {
            file,
            path: path.to_owned(),
            length,
        })
    }

    /// Size in bytes when it was opened.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Reads entry after entry.
#[derive(Debug)]
pub struct EntryReader {
    source: LogFile,
    head: SuperBlock,
    window: Vec<u8>,
    window_at: u64,
    window_filled: usize,
    at: u64,
    number: u64,
    text: Vec<u8>,
}

impl EntryReader {
    /// Reads the super block.
    ///
    /// # Errors
    /// Names the byte and the remedy.
    pub fn open(source: LogFile) -> Result<EntryReader, LogError> {
        let no_log = |offset: u64, reason: String, remedy: &'static str| LogError::NoLog {
            path: source.path.clone(),
            offset,
            reason,
            remedy,
        };
        if source.length < ENTRY_HEADER_BYTES as u64 {
            return Err(no_log(
                0,
                format!("{} bytes hold no super block", source.length),
                NOT_A_LOG,
            ));
        }
        let mut bytes = [0u8; ENTRY_HEADER_BYTES];
        source
            .file
            .read_exact_at(&mut bytes, 0)
            .map_err(|e| read_error(&source.path, e))?;
        // The same four words as an entry's header, up to the last.
        let words = decode_entry(&bytes);
        let (magic, version, entries) = (words.sector, words.sectors, words.flags);
        // Bytes 28..32 are undefined: the kernel copies what its stack held.
        let sector_bytes = (words.data_len & u64::from(u32::MAX)) as u32;
        if magic == MAGIC.swap_bytes() {
            return Err(no_log(
                0,
                "the magic stands in big-endian order".to_owned(),
                "the format is little-endian: convert it, or record it again",
            ));
        }
        if magic != MAGIC {
            return Err(no_log(
                0,
                format!("the magic is {magic:#018x} and not {MAGIC:#018x}"),
                "give a dm-log-writes log; if the log device never saw a FUA write, a mark or \
                 the target's removal, its super block was never written",
            ));
        }
        if version != VERSION {
            return Err(no_log(
                8,
                format!("version {version} is not known, only {VERSION} is"),
                "record it with a kernel or a QEMU that writes version 1",
            ));
        }
        if !sector_bytes.is_power_of_two()
            || !(MIN_SECTOR_BYTES..=MAX_SECTOR_BYTES).contains(&sector_bytes)
        {
            return Err(no_log(
                24,
                format!(
                    "a log sector of {sector_bytes} bytes cannot be: it is a power of two from \
                     {MIN_SECTOR_BYTES} to {MAX_SECTOR_BYTES}"
                ),
                RECORD_AGAIN,
            ));
        }
        if entries > MAX_ENTRIES {
            return Err(no_log(
                16,
                format!("{entries} entries are announced, more than {MAX_ENTRIES}"),
                RECORD_AGAIN,
            ));
        }
        let window = vec![0u8; WINDOW_BYTES.max(sector_bytes as usize)];
        Ok(EntryReader {
            source,
            head: SuperBlock {
                entries,
                sector_bytes,
            },
            window,
            window_at: 0,
            window_filled: 0,
            at: u64::from(sector_bytes),
            number: 0,
            text: Vec::new(),
        })
    }

    /// What the super block says.
    #[must_use]
    pub fn super_block(&self) -> SuperBlock {
        self.head
    }

    /// Byte offset of the next entry.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The text of the mark that was read last; a byte that is no UTF-8 is
    /// replaced.
    #[must_use]
    pub fn mark_text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Gives the file back.
    #[must_use]
    pub fn into_source(self) -> LogFile {
        self.source
    }

    /// The next announced entry; `None` behind the last.
    ///
    /// # Errors
    /// Names the entry, the byte and the remedy.
    pub fn next_announced(&mut self) -> Result<Option<Entry>, LogError> {
        if self.number >= self.head.entries {
            return Ok(None);
        }
        match self.parse()? {
            Ok(entry) => {
                self.at = entry.next_at;
                self.number += 1;
                Ok(Some(entry))
            }
            Err(reason) => Err(LogError::Entry {
                path: self.source.path.clone(),
                entry: self.number,
                offset: self.at,
                reason,
                remedy: RECORD_AGAIN,
            }),
        }
    }

    /// The next entry behind the announced ones, if what stands there can be
    /// one: zero padding, no text without a mark, inside the device.
    ///
    /// Old content of the log device passes this test too: what it yields is
    /// doubtful.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn next_doubtful(
        &mut self,
        device_bytes: Option<u64>,
    ) -> Result<Result<Entry, TailEnd>, LogError> {
        if self.at >= self.source.length || self.number >= MAX_ENTRIES {
            return Ok(Err(TailEnd::EndOfFile));
        }
        let offset = self.at;
        let implausible = |reason: String| Ok(Err(TailEnd::Implausible { offset, reason }));
        let sector = self.head.sector_bytes as usize;
        let all_zero = self
            .look(self.at, sector)?
            .is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0));
        if all_zero {
            return Ok(Err(TailEnd::Zeros { offset }));
        }
        let entry = match self.parse()? {
            Ok(entry) => entry,
            Err(reason) => return implausible(reason),
        };
        let most = device_bytes.unwrap_or(MAX_OFFSET);
        if entry.end_bytes() > most || entry.length_bytes > MAX_COMMAND_BYTES {
            return implausible("it reaches beyond the device".to_owned());
        }
        let text = self.text.len();
        if text > 0 && (entry.kind != EntryKind::Mark || !is_text(&self.text)) {
            return implausible("its text is none".to_owned());
        }
        let padding = ENTRY_HEADER_BYTES + text;
        let Some(bytes) = self.look(self.at, sector)? else {
            return implausible("its header is cut off".to_owned());
        };
        if bytes
            .get(padding..)
            .is_some_and(|rest| rest.iter().any(|b| *b != 0))
        {
            return implausible("its padding is not zero".to_owned());
        }
        self.at = entry.next_at;
        self.number += 1;
        Ok(Ok(entry))
    }

    /// `count` bytes at `at`, at most a log sector; `None` beyond the end.
    fn look(&mut self, at: u64, count: usize) -> Result<Option<&[u8]>, LogError> {
        let inside = |window_at: u64, filled: usize| {
            let start = usize::try_from(at.checked_sub(window_at)?).ok()?;
            (start.checked_add(count)? <= filled).then_some(start)
        };
        if inside(self.window_at, self.window_filled).is_none() {
            let left = self.source.length.saturating_sub(at);
            let want =
                usize::try_from(left).map_or(self.window.len(), |l| l.min(self.window.len()));
            if want < count {
                return Ok(None);
            }
            self.window_filled = 0;
            self.source
                .file
                .read_exact_at(&mut self.window[..want], at)
                .map_err(|e| read_error(&self.source.path, e))?;
            self.window_at = at;
            self.window_filled = want;
        }
        let start = inside(self.window_at, self.window_filled);
        Ok(start.and_then(|start| self.window.get(start..start + count)))
    }

    /// The entry at the current position, or why there is none.
    fn parse(&mut self) -> Result<Result<Entry, String>, LogError> {
        let sector = u64::from(self.head.sector_bytes);
        let (at, number, length) = (self.at, self.number, self.source.length);
        self.text.clear();
        let Some(bytes) = self.look(at, ENTRY_HEADER_BYTES)? else {
            return Ok(Err(format!(
                "the log ends at byte {length}, before the entry's header"
            )));
        };
        let mut first = [0u8; ENTRY_HEADER_BYTES];
        first.copy_from_slice(bytes);
        let header = decode_entry(&first);
        let (kind, flags) = match kind_of(&header) {
            Ok(both) => both,
            Err(reason) => return Ok(Err(reason)),
        };
        let shape = match shape_of(&header, kind, at, sector, length) {
            Ok(shape) => shape,
            Err(reason) => return Ok(Err(reason)),
        };
        if kind == EntryKind::Mark && header.data_len > 0 {
            // Not longer than a log sector: `shape_of` has seen to it.
            let count = ENTRY_HEADER_BYTES + header.data_len as usize;
            let Some(bytes) = self.look(at, count)? else {
                return Ok(Err("the text of the mark is cut off".to_owned()));
            };
            let text = bytes[ENTRY_HEADER_BYTES..].to_vec();
            self.text = text;
        }
        Ok(Ok(Entry {
            number,
            header_at: at,
            kind,
            flags,
            offset_bytes: shape.offset,
            length_bytes: shape.length,
            data_at: shape.data_at,
            next_at: shape.next_at,
        }))
    }
}

/// What the flags and the length make of an entry.
///
/// The kernel sets METADATA on anything, FUA on a flush whose data follows as
/// an entry of its own, and FLUSH and FUA on one write.
fn kind_of(header: &EntryHeader) -> Result<(EntryKind, u8), String> {
    const KNOWN: u64 = FLAG_FLUSH | FLAG_FUA | FLAG_DISCARD | FLAG_MARK | FLAG_METADATA;
    if header.flags & !KNOWN != 0 {
        return Err(format!(
            "flags {:#x} hold some that are not known",
            header.flags
        ));
    }
    let has = |flag: u64| header.flags & flag != 0;
    let (flush, fua) = (has(FLAG_FLUSH), has(FLAG_FUA));
    let kind = if has(FLAG_MARK) {
        if header.flags != FLAG_MARK || header.sectors != 0 {
            return Err("a mark has no other flag and no data".to_owned());
        }
        EntryKind::Mark
    } else if has(FLAG_DISCARD) {
        if flush || fua {
            return Err("a DISCARD has neither FLUSH nor FUA".to_owned());
        }
        EntryKind::Discard
    } else if flush && header.sectors == 0 {
        EntryKind::Flush
    } else {
        EntryKind::Write { flush, fua }
    };
    if header.sectors == 0 && matches!(kind, EntryKind::Write { .. } | EntryKind::Discard) {
        return Err(
            "it writes nothing: neither a kernel nor QEMU logs that; a hole, perhaps".to_owned(),
        );
    }
    Ok((kind, header.flags as u8))
}

struct Shape {
    offset: u64,
    length: u64,
    data_at: u64,
    next_at: u64,
}

/// Where an entry and its data lie, on the device and in a log of `end` bytes.
fn shape_of(
    header: &EntryHeader,
    kind: EntryKind,
    at: u64,
    sector: u64,
    end: u64,
) -> Result<Shape, String> {
    let place = |of: u64| {
        of.checked_mul(sector)
            .filter(|bytes| *bytes <= MAX_OFFSET)
            .ok_or_else(|| format!("{of} sectors of {sector} bytes overflow"))
    };
    let beyond = || format!("its header ends beyond the log's {end} bytes");
    let behind = at
        .checked_add(sector)
        .filter(|behind| *behind <= end)
        .ok_or_else(beyond)?;
    let bare = Shape {
        offset: 0,
        length: 0,
        data_at: 0,
        next_at: behind,
    };
    if kind == EntryKind::Mark {
        let room = sector - ENTRY_HEADER_BYTES as u64;
        if header.data_len > room {
            return Err(format!(
                "the text of the mark has {} bytes and its log sector room for {room}",
                header.data_len
            ));
        }
        return Ok(bare);
    }
    if kind == EntryKind::Flush {
        if header.data_len != 0 {
            return Err("a FLUSH has no text".to_owned());
        }
        // Of no meaning, but the kernel sets it: kept where it can be.
        let offset = place(header.sector).unwrap_or(0);
        return Ok(Shape { offset, ..bare });
    }
    let (offset, length) = (place(header.sector)?, place(header.sectors)?);
    if offset.checked_add(length).is_none_or(|e| e > MAX_OFFSET) {
        return Err(format!("{length} bytes at {offset} overflow"));
    }
    if kind == EntryKind::Discard {
        if header.data_len != 0 {
            return Err("a DISCARD has no text".to_owned());
        }
        return Ok(Shape {
            offset,
            length,
            ..bare
        });
    }
    // Kernels with DAX give the length of the data once more.
    if header.data_len > length {
        return Err(format!(
            "{} bytes of data in {length} bytes of sectors",
            header.data_len
        ));
    }
    let next_at = behind
        .checked_add(length)
        .filter(|next| *next <= end)
        .ok_or_else(|| format!("its {length} bytes of data end beyond the log's {end} bytes"))?;
    Ok(Shape {
        offset,
        length,
        data_at: behind,
        next_at,
    })
}

/// Whether these bytes read as the text of a mark.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control))
}

fn read_error(path: &Path, source: std::io::Error) -> LogError {
    LogError::Io {
        what: "cannot read the log",
        path: path.to_owned(),
        source,
        remedy: "see that the file is whole and the disk sound",
    }
}
