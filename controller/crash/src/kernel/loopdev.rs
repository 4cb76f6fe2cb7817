//! Loop devices through `LOOP_CONFIGURE`, always with autoclear.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Another process can take the device between GET_FREE and CONFIGURE; this
/// many tries outlast any number of such processes that fits on a machine.
const MAX_ATTACH_TRIES: u32 = 512;

/// How long a detach may take: somebody else (udev) may look at the device.
const DETACH_WITHIN: Duration = Duration::from_secs(10);

/// Attachments so far: a part of each one's name.
static ATTACHED: AtomicU64 = AtomicU64::new(0);

/// How the names of all our loop devices begin.
pub const OUR_NAMES: &str = "plugpull-";

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// How a loop device reaches its backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Direct I/O: each command reaches the backing as it is, several at once.
    Direct,
    /// Through the page cache, as `losetup` does unless told otherwise: one
    /// command at a time. Only a baseline for benchmarks.
    Buffered,
}

impl Caching {
    fn flag(self) -> u32 {
        match self {
            Caching::Direct => LO_FLAGS_DIRECT_IO,
            Caching::Buffered => 0,
        }
    }
}

/// An attached loop device. Closing the last descriptor detaches it, so that
/// SIGKILL of this process does, too.
#[derive(Debug)]
pub struct LoopDevice {
    device: File,
    number: u32,
    name: String,
}

impl LoopDevice {
    /// Attaches `backing` (opened read-write, `O_DIRECT` capable) with this
    /// logical block size. `name` (at most 40 bytes) begins
    /// what `LOOP_GET_STATUS64` shows.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn attach(
        backing: BorrowedFd<'_>,
        logical_block_bytes: u32,
        name: &str,
        caching: Caching,
    ) -> io::Result<LoopDevice> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        let mut last = io::Error::from_raw_os_error(libc::EBUSY);
        for attempt in 0..MAX_ATTACH_TRIES {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
            match Self::attach_number(number, backing, logical_block_bytes, name, caching) {
                Ok(device) => return Ok(device),
                // ENXIO, ENOENT: the node is not there yet.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::EBUSY | libc::ENXIO | libc::ENOENT)
                    ) =>
                {
                    last = e
                }
                Err(e) => return Err(e),
            }
            if attempt > 8 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Err(last)
    }

    /// Attaches one particular loop device.
    ///
    /// # Errors
    /// The kernel's error; EBUSY when it is taken.
    pub fn attach_number(
        number: u32,
        backing: BorrowedFd<'_>,
        logical_block_bytes: u32,
        name: &str,
        caching: Caching,
    ) -> io::Result<LoopDevice> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(node(number))?;
        // Told apart from every other attachment of this number: see `detach`.
        let name = format!("{name}-{}", ATTACHED.fetch_add(1, Ordering::Relaxed));
        let mut file_name = [0u8; 64];
        let bytes = name.as_bytes();
        let length = bytes.len().min(63);
        file_name[..length].copy_from_slice(&bytes[..length]);
        let config = LoopConfig {
            fd: u32::try_from(backing.as_raw_fd())
                .map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?,
            block_size: logical_block_bytes,
            info: LoopInfo64 {
                device: 0,
                inode: 0,
                rdevice: 0,
                offset: 0,
                sizelimit: 0,
                number,
                encrypt_type: 0,
                encrypt_key_size: 0,
                flags: LO_FLAGS_AUTOCLEAR | caching.flag(),
                file_name,
                crypt_name: [0; 64],
                encrypt_key: [0; 32],
                init: [0; 2],
            },
            reserved: [0; 8],
        };
        // SAFETY: `config` is laid out as `struct loop_config` and outlives the call.
        let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(LoopDevice {
            device,
            number,
            name,
        })
    }

    /// `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        node(self.number)
    }

    /// `loopN`, as the kernel log calls it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("loop{}", self.number)
    }

    /// N.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Reads one queue attribute, e.g. `write_cache`.
    ///
    /// # Errors
    /// The kernel's error; `NotFound` where the kernel has no such attribute.
    pub fn queue(&self, attribute: &str) -> io::Result<String> {
        Ok(std::fs::read_to_string(self.queue_path(attribute))?
            .trim()
            .to_owned())
    }

    /// Writes one queue attribute.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_queue(&self, attribute: &str, value: &str) -> io::Result<()> {
        std::fs::write(self.queue_path(attribute), value)
    }

    fn queue_path(&self, attribute: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/loop{}/queue/{attribute}", self.number))
    }

    /// Detaches, and waits until the device is bound to nothing: from then on
    /// no write of whatever was mounted on it can reach the backing any more.
    /// Everything that holds the device (mounts, other descriptors) has to be
    /// let go of before.
    ///
    /// # Errors
    /// The kernel's error; `TimedOut` when something still holds the device.
    pub fn detach(self) -> io::Result<()> {
        // SAFETY: LOOP_CLR_FD takes no argument.
        let rc = unsafe { libc::ioctl(self.device.as_raw_fd(), LOOP_CLR_FD) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = self.path();
        let name = self.name.clone();
        super::fork::let_go(|| drop(self));
        let until = Instant::now() + DETACH_WITHIN;
        while name_of(&path).is_ok_and(|found| found == name) {
            if Instant::now() > until {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{} is still in use by somebody", path.display()),
                ));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl AsFd for LoopDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// Most loop devices looked at when searching for one by name.
const MAX_DEVICES: u32 = 4096;

/// The attached loop devices whose `LOOP_GET_STATUS64` name begins with `prefix`.
#[must_use]
pub fn named(prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter(|entry| entry.path().join("loop").exists())
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_prefix("loop")?
                .parse()
                .ok()
        })
        .filter(|number| *number < MAX_DEVICES)
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .map(node)
        .filter(|path| name_of(path).is_ok_and(|found| found.starts_with(prefix)))
        .collect()
}

fn name_of(path: &std::path::Path) -> io::Result<String> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
    let device = File::open(path)?;
    let mut info = std::mem::MaybeUninit::<LoopInfo64>::zeroed();
    // SAFETY: the kernel fills a `struct loop_info64`, which `info` has room for.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed at first and then filled; every field is an integer.
    let info = unsafe { info.assume_init() };
    let length = info
        .file_name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(info.file_name.len());
    Ok(String::from_utf8_lossy(&info.file_name[..length]).into_owned())
}

/// Detaches a loop device by its path.
///
/// # Errors
/// The kernel's error.
pub fn clear(path: &std::path::Path) -> io::Result<()> {
    let device = File::open(path)?;
    // SAFETY: LOOP_CLR_FD takes no argument.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
