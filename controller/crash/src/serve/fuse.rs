//! A FUSE file system that exports one file: a drive, to be put under a loop device.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, SessionACL, WriteFlags,
};

use crate::kernel::mount::{DetachedMount, MountFailure, mount_fuse};

/// The one file's name.
pub const FILE_NAME: &str = "drive";

/// Largest write FUSE may send: also the bound of the loop device's
/// `max_sectors_kb`, so that one block command stays one FUSE request.
pub const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Attributes never change, so the kernel may keep them for ever.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Called once when a command ends: `Ok`, or an error number.
pub type Done = Box<dyn FnOnce(Result<(), i32>) + Send>;

/// What a drive looks like to a server. Commands may end later and on another
/// thread; several are in flight at once.
pub trait Backend: Send + Sync + 'static {
    /// The drive's size.
    fn size_bytes(&self) -> u64;
    /// Reads; a read sees every write that has completed.
    ///
    /// # Errors
    /// An error number.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), i32>;
    /// WRITE.
    fn write(&self, offset: u64, data: &[u8], done: Done);
    /// FLUSH.
    fn flush(&self, done: Done);
    /// DISCARD.
    fn discard(&self, offset: u64, length_bytes: u64, done: Done);
    /// WRITE ZEROES.
    fn write_zeroes(&self, offset: u64, length_bytes: u64, done: Done);
}

struct OneFile<B> {
    backend: Arc<B>,
}

const ROOT: INodeNo = INodeNo::ROOT;
const FILE: INodeNo = INodeNo(2);

impl<B: Backend> OneFile<B> {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let file = inode == FILE;
        let size = if file { self.backend.size_bytes() } else { 0 };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn errno(code: i32) -> Errno {
    Errno::from_i32(code)
}

impl<B: Backend> Filesystem for OneFile<B> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // FUSE_ASYNC_DIO: without it direct I/O is sent one request at a time
        // and the drive would never see a depth above 1.
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_MAX_PAGES,
        ] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(256);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == ROOT && name == FILE_NAME {
            reply.entry(&FOREVER, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOREVER, &self.attributes(inode));
    }

    fn open(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if inode == FILE {
            reply.opened(
                FileHandle(1),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            );
        } else {
            reply.error(Errno::EISDIR);
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.backend.size_bytes().saturating_sub(offset);
        let length = u64::from(size.min(2 * MAX_WRITE_BYTES)).min(left);
        let mut out = vec![0u8; usize::try_from(length).unwrap_or(0)];
        match self.backend.read(offset, &mut out) {
            Ok(()) => reply.data(&out),
            Err(code) => reply.error(errno(code)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Ok(length) = u32::try_from(data.len()) else {
            return reply.error(Errno::EINVAL);
        };
        if offset
            .checked_add(u64::from(length))
            .is_none_or(|end| end > self.backend.size_bytes())
        {
            return reply.error(Errno::ENOSPC);
        }
        self.backend.write(
            offset,
            data,
            Box::new(move |outcome| match outcome {
                Ok(()) => reply.written(length),
                Err(code) => reply.error(errno(code)),
            }),
        );
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.backend.flush(empty(reply));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.backend.size_bytes())
        {
            return reply.error(Errno::EINVAL);
        }
        if mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
            self.backend.write_zeroes(offset, length, empty(reply));
        } else if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            self.backend.discard(offset, length, empty(reply));
        } else {
            reply.error(Errno::EOPNOTSUPP);
        }
    }

    // Closing the file is no device command.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

fn empty(reply: ReplyEmpty) -> Done {
    Box::new(move |outcome| match outcome {
        Ok(()) => reply.ok(),
        Err(code) => reply.error(errno(code)),
    })
}

/// Why the FUSE side could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// `/dev/fuse` is not there or not ours.
    #[error("cannot open /dev/fuse: {0}; load FUSE (modprobe fuse) and run as root")]
    Device(io::Error),
    /// The mount was refused.
    #[error("cannot mount the drive's FUSE file system: {} failed with errno {}{}", .0.call, .0.errno, words(&.0.messages))]
    Mount(MountFailure),
    /// The session could not be started.
    #[error("cannot start the FUSE session: {0}")]
    Session(io::Error),
}

fn words(messages: &[String]) -> String {
    if messages.is_empty() {
        String::new()
    } else {
        format!(" ({})", messages.join("; "))
    }
}

/// Mounts a FUSE file system with one file over `backend`, served by `threads`
/// threads, and returns the mount. The threads end when the mount is gone.
///
/// # Errors
/// See [`ServeError`].
pub fn serve<B: Backend>(backend: Arc<B>, threads: usize) -> Result<DetachedMount, ServeError> {
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(ServeError::Device)?;
    let device = OwnedFd::from(device);
    let mount = mount_fuse(std::os::fd::AsFd::as_fd(&device)).map_err(ServeError::Mount)?;
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = true;
    let session = Session::from_fd(OneFile { backend }, device, SessionACL::All, config)
        .map_err(ServeError::Session)?;
    std::thread::Builder::new()
        .name("fuse".to_owned())
        .spawn(move || {
            // ENODEV at the end of the mount's life is the normal end.
            let _ = session.run();
        })
        .map_err(ServeError::Session)?;
    Ok(mount)
}
