//! What is there now: the bytes of the workload's objects, read without judging them.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};
use nix::sys::uio::pread;
use plugpull_model::observation::{ObservedContent, ObservedObject};
use plugpull_model::seams::Device;
use plugpull_model::units::ByteOffset;
use plugpull_model::workload::PlannedWorkload;

use crate::layout::{areas, is_plain_name};

/// Objects are read in pieces of about this.
const PIECE_BYTES: u64 = 1 << 20;

/// Reads every file of the workload as it is now, through the page cache.
///
/// At most the planned length and one record are read: bytes beyond the planned length say that the
/// file is longer. What a damaged file system shows in the place of a file is not opened: a
/// directory, a device node or a pipe is unreadable (`EISDIR`, `EINVAL`), and so is a symbolic link
/// (`ELOOP`).
#[must_use]
pub fn read_files(root: BorrowedFd<'_>, workload: &PlannedWorkload) -> Vec<ObservedObject> {
    areas(workload)
        .into_iter()
        .map(|area| {
            let limit_bytes = area
                .end_bytes
                .saturating_add(u64::from(workload.record_bytes));
            ObservedObject {
                name: area.object.to_owned(),
                content: read_file(root, area.object, limit_bytes),
            }
        })
        .collect()
}

fn read_file(root: BorrowedFd<'_>, object: &str, limit_bytes: u64) -> ObservedContent {
    let mut bytes = Vec::new();
    match try_read_file(root, object, limit_bytes, &mut bytes) {
        Ok(()) => ObservedContent::Bytes(bytes),
        Err(Errno::ENOENT) if bytes.is_empty() => ObservedContent::Missing,
        Err(errno) => ObservedContent::Unreadable {
            before: bytes,
            errno: errno as i32,
        },
    }
}

fn try_read_file(
    root: BorrowedFd<'_>,
    object: &str,
    limit_bytes: u64,
    bytes: &mut Vec<u8>,
) -> Result<(), Errno> {
    if !is_plain_name(object) {
        return Err(Errno::EINVAL);
    }
    let mode = fstatat(root, object, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode;
    match mode & libc::S_IFMT {
        libc::S_IFREG => {}
        libc::S_IFDIR => return Err(Errno::EISDIR),
        libc::S_IFLNK => return Err(Errno::ELOOP),
        _ => return Err(Errno::EINVAL),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = openat(root, object, flags, Mode::empty())?;
    loop {
        let have = bytes.len();
        let left = limit_bytes.saturating_sub(have as u64);
        if left == 0 {
            return Ok(());
        }
        bytes.resize(have + as_length(left.min(PIECE_BYTES)), 0);
        let outcome = read_piece(&file, have as u64, &mut bytes[have..]);
        bytes.truncate(have + outcome.unwrap_or(0));
        if outcome? == 0 {
            return Ok(());
        }
    }
}

fn read_piece(file: impl AsFd, at: u64, out: &mut [u8]) -> Result<usize, Errno> {
    let offset = i64::try_from(at).map_err(|_| Errno::EFBIG)?;
    loop {
        match pread(file.as_fd(), out, offset) {
            Err(Errno::EINTR) => {}
            outcome => return outcome,
        }
    }
}

/// Reads the records' area of a device, from offset 0 to the end of the last record: one object,
/// named as the plan names it (`device`). When a read fails, what lies before the first record that
/// cannot be read is kept.
#[must_use]
pub fn read_device(device: &dyn Device, workload: &PlannedWorkload) -> Vec<ObservedObject> {
    areas(workload)
        .into_iter()
        .map(|area| ObservedObject {
            name: area.object.to_owned(),
            content: read_area(
                device,
                area.end_bytes.min(device.size_bytes()),
                u64::from(workload.record_bytes).max(1),
            ),
        })
        .collect()
}

fn read_area(device: &dyn Device, end_bytes: u64, record_bytes: u64) -> ObservedContent {
    let piece_bytes = (PIECE_BYTES / record_bytes).max(1) * record_bytes;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < end_bytes {
        let left = end_bytes - bytes.len() as u64;
        if append(device, left.min(piece_bytes), &mut bytes).is_ok() {
            continue;
        }
        // Somewhere in this piece: record by record, up to the one that fails again.
        let piece_end = end_bytes.min(bytes.len() as u64 + piece_bytes);
        while (bytes.len() as u64) < piece_end {
            let left = piece_end - bytes.len() as u64;
            if let Err(errno) = append(device, left.min(record_bytes), &mut bytes) {
                return ObservedContent::Unreadable {
                    before: bytes,
                    errno,
                };
            }
        }
    }
    ObservedContent::Bytes(bytes)
}

fn append(device: &dyn Device, length_bytes: u64, bytes: &mut Vec<u8>) -> Result<(), i32> {
    let have = bytes.len();
    bytes.resize(have + as_length(length_bytes), 0);
    device
        .read(ByteOffset(have as u64), &mut bytes[have..])
        .map_err(|error| {
            bytes.truncate(have);
            error.raw_os_error().unwrap_or(libc::EIO)
        })
}

/// A length that is at most a piece.
fn as_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
