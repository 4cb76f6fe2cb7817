//! Writes a write log and its side-car.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::LogError;
use super::format::{
    FLAG_DISCARD, FLAG_FLUSH, FLAG_FUA, FLAG_MARK, LOG_SECTOR_BYTES, entry_header, super_block,
};
use super::index::{Command, ENTRY_BYTES, IndexHeader, Kind, encode, encode_header};
use super::reader::read_index;

/// What follows an entry's header.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// These bytes.
    Data(&'a [u8]),
    /// This many zeros, kept as a hole.
    Zeros(u64),
}

/// Appends entries in completion order.
#[derive(Debug)]
pub struct LogWriter {
    log: BufWriter<File>,
    index: BufWriter<File>,
    at: u64,
    log_entries: u64,
    index_entries: u64,
}

impl LogWriter {
    /// Creates both files anew.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(log: &Path, index: &Path) -> io::Result<LogWriter> {
        let mut log = BufWriter::with_capacity(1 << 18, File::create(log)?);
        let mut index = BufWriter::with_capacity(1 << 16, File::create(index)?);
        log.write_all(&super_block(0))?;
        // Rewritten by `finish`; zeros mean "not finished".
        index.write_all(&[0u8; ENTRY_BYTES])?;
        Ok(LogWriter {
            log,
            index,
            at: LOG_SECTOR_BYTES,
            log_entries: 0,
            index_entries: 0,
        })
    }

    /// Appends one completed command. A failed one goes to the side-car only:
    /// it did nothing, and dm-log-writes has no word for it.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn append(&mut self, command: &Command, payload: Payload<'_>) -> io::Result<()> {
        let mut command = *command;
        command.data_at = 0;
        if command.errno == 0 {
            let flags = match command.kind {
                Kind::Write | Kind::WriteZeroes => 0,
                Kind::WriteFua => FLAG_FUA,
                Kind::Discard => FLAG_DISCARD,
                Kind::Flush => FLAG_FLUSH,
            };
            let sectors = command.length_bytes / LOG_SECTOR_BYTES;
            self.log.write_all(&entry_header(
                command.offset_bytes / LOG_SECTOR_BYTES,
                sectors,
                flags,
                "",
            ))?;
            self.at += LOG_SECTOR_BYTES;
            match payload {
                Payload::None => {}
                Payload::Data(data) => {
                    command.data_at = self.at;
                    self.log.write_all(data)?;
                    self.at += data.len() as u64;
                }
                Payload::Zeros(length) => {
                    command.data_at = self.at;
                    self.at += length;
                    self.log.seek(SeekFrom::Start(self.at))?;
                }
            }
            self.log_entries += 1;
        }
        self.index.write_all(&encode(&command))?;
        self.index_entries += 1;
        Ok(())
    }

    /// Appends a mark: one word.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn mark(&mut self, text: &str) -> io::Result<()> {
        self.log.write_all(&entry_header(0, 0, FLAG_MARK, text))?;
        self.at += LOG_SECTOR_BYTES;
        self.log_entries += 1;
        Ok(())
    }

    /// Writes the final headers and makes both files durable.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn finish(mut self, device_bytes: u64, base: u64, max_depth: u32) -> io::Result<()> {
        self.log.flush()?;
        self.index.flush()?;
        let log = self.log.get_mut();
        // A log that ends in a hole has to reach its full length.
        log.set_len(self.at)?;
        log.seek(SeekFrom::Start(0))?;
        log.write_all(&super_block(self.log_entries))?;
        let index = self.index.get_mut();
        index.seek(SeekFrom::Start(0))?;
        let header = IndexHeader {
            entries: self.index_entries,
            device_bytes,
            base,
            max_depth,
        };
        index.write_all(&encode_header(&header))?;
        log.sync_all()?;
        index.sync_all()
    }
}

/// Writes `raw` once more with its marks in their places: each stands behind
/// every entry that had completed when it was taken. The results replace
/// `log` and `index` in one rename each.
///
/// # Errors
/// Names the file and the remedy.
pub fn merge_marks(
    raw: (&Path, &Path),
    marks: &[(u64, String)],
    log: &Path,
    index: &Path,
) -> Result<(), LogError> {
    let (header, commands) = read_index(raw.1)?;
    let temporary = (with_suffix(log, ".tmp"), with_suffix(index, ".tmp"));
    let write = || -> io::Result<()> {
        let mut source = File::open(raw.0)?;
        let mut out = LogWriter::create(&temporary.0, &temporary.1)?;
        let mut marks = marks.iter().peekable();
        let mut data = Vec::new();
        for command in &commands {
            while let Some((_, text)) = marks.next_if(|(at, _)| *at <= command.completed) {
                out.mark(text)?;
            }
            let payload = match command.kind {
                _ if command.errno != 0 => Payload::None,
                Kind::Write | Kind::WriteFua => {
                    data.resize(usize::try_from(command.length_bytes).unwrap_or(0), 0);
                    source.seek(SeekFrom::Start(command.data_at))?;
                    source.read_exact(&mut data)?;
                    Payload::Data(&data)
                }
                Kind::WriteZeroes => Payload::Zeros(command.length_bytes),
                Kind::Discard | Kind::Flush => Payload::None,
            };
            out.append(command, payload)?;
        }
        for (_, text) in marks {
            out.mark(text)?;
        }
        out.finish(header.device_bytes, header.base, header.max_depth)?;
        std::fs::rename(&temporary.0, log)?;
        std::fs::rename(&temporary.1, index)?;
        Ok(())
    };
    write().map_err(|source| LogError::Io {
        what: "cannot write the log",
        path: log.to_owned(),
        source,
        remedy: "see that the disk has room and the folder is writable",
    })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
