//! The append-log on a file system.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::pwrite;
use nix::unistd::{fdatasync, fsync};
use plugpull_model::seams::{AckSink, PositionSource};
use plugpull_model::workload::{Acknowledge, LogFile, PlannedWorkload};
use plugpull_record::RunId;

use crate::GeneratorError;
use crate::engine::{CommitError, Engine, Target, WorkloadSummary};
use crate::layout::{areas, check_files};

/// Zeros are written in pieces of this.
const PIECE_BYTES: usize = 1 << 20;
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// Creates every log file, and fills a preallocated one with zeros over its full length; then
/// fsyncs each and their directory.
///
/// # Errors
/// When the workload cannot be written, when a file is there already (a trial starts on a fresh
/// file system), or what the file system says.
pub fn prepare_files(
    root: BorrowedFd<'_>,
    workload: &PlannedWorkload,
) -> Result<(), GeneratorError> {
    check_files(workload)?;
    let directory = open_directory(root)?;
    for area in areas(workload) {
        let failed = |doing| move |errno| GeneratorError::file(doing, area.object, errno);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = openat(&directory, area.object, flags, FILE_MODE).map_err(failed("creating"))?;
        if workload.file == LogFile::Preallocated {
            fill_with_zeros(&file, area.end_bytes).map_err(failed("writing zeros to"))?;
        }
        fsync(&file).map_err(failed("syncing"))?;
    }
    fsync(&directory).map_err(|errno| GeneratorError::file("syncing", ".", errno))
}

/// A descriptor of the directory that can be synced. What `fsmount(2)` returns cannot.
pub(crate) fn open_directory(root: BorrowedFd<'_>) -> Result<OwnedFd, GeneratorError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(root, ".", flags, Mode::empty())
        .map_err(|errno| GeneratorError::file("opening the directory", ".", errno))
}

fn fill_with_zeros(file: &OwnedFd, length_bytes: u64) -> Result<(), Errno> {
    let zeros = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < length_bytes {
        let left = usize::try_from(length_bytes - at).unwrap_or(PIECE_BYTES);
        let piece = &zeros[..left.min(PIECE_BYTES)];
        write_whole(file, at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Writes all of it, in several calls if the kernel takes only a part. Nothing is tried twice.
pub(crate) fn write_whole(file: impl AsFd, mut at: u64, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        let offset = i64::try_from(at).map_err(|_| Errno::EFBIG)?;
        let taken = pwrite(file.as_fd(), data, offset)?;
        if taken == 0 {
            return Err(Errno::EIO);
        }
        data = data.get(taken..).unwrap_or_default();
        at += taken as u64;
    }
    Ok(())
}

/// Runs every writer of the workload on the files that [`prepare_files`] created, and returns when
/// all have ended.
///
/// For each record: the drive's position and an issued line right before the write; the
/// acknowledging call; the drive's position right after it returned, and an acknowledged line with
/// the latency, or a failed line. Records are encoded outside of that. The pause of the plan
/// precedes every record, the first one too, so that the minimum duration is reached by the last
/// acknowledgement. A writer stops at its first failure, the others go on; see the
/// [crate's documentation](crate). Once `stop` is set, writers end before their next record, also
/// out of a pause.
///
/// # Errors
/// When the workload cannot be written to files, a file cannot be opened, or a ledger line cannot
/// be kept. Failures of writes and syncs are in the summary and in the ledger.
pub fn run_files(
    root: BorrowedFd<'_>,
    run: RunId,
    workload: &PlannedWorkload,
    positions: &dyn PositionSource,
    sink: &dyn AckSink,
    stop: &AtomicBool,
) -> Result<WorkloadSummary, GeneratorError> {
    check_files(workload)?;
    let (flags, sync) = acknowledging(workload.acknowledge)?;
    let mut targets = Vec::with_capacity(workload.writers.len());
    for writer in &workload.writers {
        targets.push(FileTarget {
            file: open_log(root, &writer.object, flags, workload.direct)?,
            sync,
        });
    }
    let engine = Engine {
        run,
        workload,
        positions,
        sink,
        stop,
    };
    engine.run(targets)
}

fn open_log(
    root: BorrowedFd<'_>,
    object: &str,
    flags: OFlag,
    direct: bool,
) -> Result<OwnedFd, GeneratorError> {
    let mut flags = flags | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    if direct {
        flags |= OFlag::O_DIRECT;
    }
    openat(root, object, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::EINVAL if direct => GeneratorError::DirectUnsupported {
            object: object.to_owned(),
        },
        _ => GeneratorError::file("opening", object, errno),
    })
}

/// The call that follows the write, if any.
#[derive(Clone, Copy)]
enum SyncCall {
    None,
    Fsync,
    Fdatasync,
}

fn acknowledging(acknowledge: Acknowledge) -> Result<(OFlag, SyncCall), GeneratorError> {
    let refused = |acknowledge| {
        Err(GeneratorError::Acknowledge {
            acknowledge,
            stack: "a file system",
            instead: "`fsync`, `fdatasync`, `o-sync`, `o-dsync` or `none`",
        })
    };
    match acknowledge {
        Acknowledge::Fsync => Ok((OFlag::empty(), SyncCall::Fsync)),
        Acknowledge::Fdatasync => Ok((OFlag::empty(), SyncCall::Fdatasync)),
        Acknowledge::OSync => Ok((OFlag::O_SYNC, SyncCall::None)),
        Acknowledge::ODsync => Ok((OFlag::O_DSYNC, SyncCall::None)),
        Acknowledge::None => Ok((OFlag::empty(), SyncCall::None)),
        Acknowledge::Flush => refused("flush"),
        Acknowledge::Fua => refused("fua"),
    }
}

struct FileTarget {
    file: OwnedFd,
    sync: SyncCall,
}

impl Target for FileTarget {
    fn commit(&self, at: u64, record: &[u8]) -> Result<(), CommitError> {
        let failed = |call| {
            move |errno: Errno| CommitError {
                call,
                errno: errno as i32,
            }
        };
        write_whole(&self.file, at, record).map_err(failed("pwrite"))?;
        match self.sync {
            SyncCall::None => Ok(()),
            SyncCall::Fsync => fsync(&self.file).map_err(failed("fsync")),
            SyncCall::Fdatasync => fdatasync(&self.file).map_err(failed("fdatasync")),
        }
    }
}
