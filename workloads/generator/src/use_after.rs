//! Using a recovered file system once more, to bring out damage that the mount alone does not show:
//! a stale allocation map hands out blocks that the logs own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::sys::uio::pwrite;
use nix::unistd::{UnlinkatFlags, fsync, syncfs, unlinkat};

use crate::GeneratorError;
use crate::files::open_directory;

/// What is written here lies in a directory of its own, `plugpull-use-<n>`: the first that is free.
const DIRECTORY_PREFIX: &str = "plugpull-use-";
/// So many written files are held open at most.
const MOST_UNSYNCED: usize = 64;
const MAX_DIRECTORIES: u32 = 10_000;
/// So many files of one block come first: names and inodes rather than data.
const SMALL_FILES: u32 = 16;
const SMALL_BYTES: u64 = 4096;
/// About so many files take the rest.
const LARGE_FILES: u64 = 32;
const LARGE_LEAST_BYTES: u64 = 64 << 10;
/// Writes are tried at this length first, and in quarters down to a block as space ends.
const PIECE_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 4096;
const FOREIGN_CELL: &[u8; 64] =
    b"written by plugpull's use after recovery, and no record of it.\n\n";

/// What [`use_files`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UseSummary {
    /// The directory that holds its files, right under the mount. Empty when there was no room for it.
    pub directory: String,
    /// Files created to fill the file system.
    pub files_created: u32,
    /// Bytes written to them.
    pub bytes_written: u64,
    /// Whether the file system said that it is full; else `max_fill_bytes` ended the filling.
    pub full: bool,
    /// Files deleted: every second one.
    pub files_deleted: u32,
    /// Bytes that they held.
    pub bytes_deleted: u64,
    /// Files created after that.
    pub files_recreated: u32,
    /// Bytes written to them, at most those deleted.
    pub bytes_rewritten: u64,
}

/// Uses the file system under `root`: fills it with files that are not the workload's, up to
/// `ENOSPC` or `max_fill_bytes`, syncs them, deletes every second one, creates as many again, and
/// syncs this file system (never all of them).
///
/// At no time do its files hold more than `max_fill_bytes`. They stay, so that whoever reads the
/// workload's objects next reads them on a file system whose free space has been handed out. The
/// content is text that names file and block, never zeros and never a record.
///
/// # Errors
/// Anything that fails but the end of space, with the step and the file. After a recovery that is a
/// finding, not a failure of the rig.
pub fn use_files(root: BorrowedFd<'_>, max_fill_bytes: u64) -> Result<UseSummary, GeneratorError> {
    let root = open_directory(root)?;
    let mut summary = UseSummary::default();
    summary.directory = match make_directory(&root) {
        Err(error) if error.errno().is_some_and(is_no_space) => {
            summary.full = true;
            return Ok(summary);
        }
        made => made?,
    };
    let directory = open_directory_at(&root, &summary.directory)?;
    let mut user = User {
        directory,
        piece: Vec::new(),
        unsynced: Vec::new(),
        full: false,
    };

    let files = user.fill(large_bytes(&root, max_fill_bytes), max_fill_bytes)?;
    user.sync()?;
    summary.files_created = count(&files);
    summary.bytes_written = files.iter().map(|file| file.bytes).sum();
    summary.full = user.full;

    let deleted: Vec<UsedFile> = files.into_iter().step_by(2).collect();
    for file in &deleted {
        unlinkat(
            &user.directory,
            file.name.as_str(),
            UnlinkatFlags::NoRemoveDir,
        )
        .map_err(|errno| GeneratorError::file("deleting", &file.name, errno))?;
    }
    // Some file systems give blocks back only with the transaction that frees them.
    sync_file_system(&root)?;
    summary.files_deleted = count(&deleted);
    summary.bytes_deleted = deleted.iter().map(|file| file.bytes).sum();

    for old in &deleted {
        let name = format!("again-{}", summary.files_recreated);
        match user.create(&name, old.bytes)? {
            Some(file) => {
                summary.files_recreated += 1;
                summary.bytes_rewritten += file.bytes;
            }
            None => break,
        }
    }
    user.sync()?;
    Ok(summary)
}

struct UsedFile {
    name: String,
    bytes: u64,
}

struct User {
    directory: OwnedFd,
    piece: Vec<u8>,
    /// Files that were written, held open so that they can be synced together.
    unsynced: Vec<(String, OwnedFd)>,
    full: bool,
}

impl User {
    fn fill(&mut self, large_bytes: u64, max_bytes: u64) -> Result<Vec<UsedFile>, GeneratorError> {
        let mut files = Vec::new();
        let mut left = max_bytes;
        while left > 0 && !self.full {
            let number = count(&files);
            let wanted = if number < SMALL_FILES {
                SMALL_BYTES
            } else {
                large_bytes
            };
            let Some(file) = self.create(&format!("fill-{number}"), wanted.min(left))? else {
                break;
            };
            left -= file.bytes;
            files.push(file);
        }
        Ok(files)
    }

    /// Creates and writes a file of this length, or of less when the file system is full.
    /// `None` when there is no room for even its name.
    fn create(&mut self, name: &str, bytes: u64) -> Result<Option<UsedFile>, GeneratorError> {
        let failed = |doing| move |errno| GeneratorError::file(doing, name, errno);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = match openat(
            &self.directory,
            name,
            flags,
            Mode::from_bits_truncate(0o644),
        ) {
            Ok(file) => file,
            Err(Errno::ENOSPC | Errno::EDQUOT) => {
                self.full = true;
                return Ok(None);
            }
            Err(errno) => return Err(failed("creating")(errno)),
        };
        let mut at = 0;
        let mut most = PIECE_BYTES;
        while at < bytes {
            let left = usize::try_from(bytes - at).unwrap_or(most);
            let piece = foreign_piece(&mut self.piece, name, at, left.min(most));
            let offset = i64::try_from(at).map_err(|_| failed("writing")(Errno::EFBIG))?;
            match pwrite(&file, piece, offset) {
                Ok(0) => return Err(failed("writing")(Errno::EIO)),
                Ok(taken) => at += taken as u64,
                Err(Errno::EINTR) => {}
                Err(Errno::ENOSPC | Errno::EDQUOT) if piece.len() > BLOCK_BYTES => {
                    most = (piece.len() / 4).max(BLOCK_BYTES);
                }
                Err(Errno::ENOSPC | Errno::EDQUOT) => {
                    self.full = true;
                    break;
                }
                Err(errno) => return Err(failed("writing")(errno)),
            }
        }
        self.unsynced.push((name.to_owned(), file));
        if self.unsynced.len() >= MOST_UNSYNCED {
            self.sync()?;
        }
        Ok(Some(UsedFile {
            name: name.to_owned(),
            bytes: at,
        }))
    }

    /// Syncs the file system, with one commit where every file on its own would take one each; then
    /// every file, which tells what happened to that file.
    fn sync(&mut self) -> Result<(), GeneratorError> {
        let outcome = sync_file_system(&self.directory);
        self.unless_full(outcome)?;
        for (name, file) in std::mem::take(&mut self.unsynced) {
            let outcome =
                fsync(&file).map_err(|errno| GeneratorError::file("syncing", &name, errno));
            self.unless_full(outcome)?;
        }
        fsync(&self.directory)
            .map_err(|errno| GeneratorError::file("syncing the directory", DIRECTORY_PREFIX, errno))
    }

    /// Space may have been promised to the page cache and not be there.
    fn unless_full(&mut self, outcome: Result<(), GeneratorError>) -> Result<(), GeneratorError> {
        match outcome {
            Err(error) if error.errno().is_some_and(is_no_space) => {
                self.full = true;
                Ok(())
            }
            outcome => outcome,
        }
    }
}

fn is_no_space(errno: i32) -> bool {
    matches!(errno, libc::ENOSPC | libc::EDQUOT)
}

/// Bytes that are no record's: every block begins with the name of its file and its number, and is
/// text throughout.
fn foreign_piece<'a>(buffer: &'a mut Vec<u8>, name: &str, at: u64, length: usize) -> &'a [u8] {
    if buffer.is_empty() {
        *buffer = FOREIGN_CELL.repeat(PIECE_BYTES / FOREIGN_CELL.len());
    }
    let piece = buffer.get_mut(..length).unwrap_or_default();
    for (block, bytes) in (at / BLOCK_BYTES as u64..).zip(piece.chunks_mut(BLOCK_BYTES)) {
        let label = format!("{:<63}", format!("{name}, block {block}"));
        for (byte, letter) in bytes.iter_mut().zip(label.as_bytes()) {
            *byte = *letter;
        }
    }
    piece
}

fn make_directory(root: &OwnedFd) -> Result<String, GeneratorError> {
    for number in 0..MAX_DIRECTORIES {
        let name = format!("{DIRECTORY_PREFIX}{number}");
        match mkdirat(root, name.as_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) => return Ok(name),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(GeneratorError::file("creating the directory", &name, errno)),
        }
    }
    Err(GeneratorError::file(
        "creating the directory",
        DIRECTORY_PREFIX,
        Errno::EEXIST,
    ))
}

fn open_directory_at(root: &OwnedFd, name: &str) -> Result<OwnedFd, GeneratorError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    openat(root, name, flags, Mode::empty())
        .map_err(|errno| GeneratorError::file("opening the directory", name, errno))
}

/// So that about [`LARGE_FILES`] fill what is free. Free space is only an estimate here: what a
/// damaged file system claims decides nothing but this.
fn large_bytes(root: &OwnedFd, max_fill_bytes: u64) -> u64 {
    let free_bytes = fstatvfs(root).map_or(u64::MAX, |space| {
        space.blocks_free().saturating_mul(space.fragment_size())
    });
    (free_bytes.min(max_fill_bytes) / LARGE_FILES)
        .max(LARGE_LEAST_BYTES)
        .next_multiple_of(BLOCK_BYTES as u64)
}

fn sync_file_system(root: impl AsFd) -> Result<(), GeneratorError> {
    syncfs(root).map_err(|errno| GeneratorError::file("syncing the file system of", ".", errno))
}

fn count(files: &[UsedFile]) -> u32 {
    u32::try_from(files.len()).unwrap_or(u32::MAX)
}
