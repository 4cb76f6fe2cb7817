//! A drive process's file under a loop device.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use plugpull_crash::kernel::loopdev::{Caching, LoopDevice};
use plugpull_crash::kernel::mount::DetachedMount;
use plugpull_crash::serve::fuse::FILE_NAME;
use plugpull_model::drive::{DriveSettings, WriteCacheReported};

use crate::error::{RunError, kernel_error};
use crate::registry::LOOP_NAME;

/// No larger than what FUSE sends in one request, so that one block command
/// stays one command of the drive.
const MAX_SECTORS_KB: &str = "512";

/// Queue attributes that a report shows.
const QUEUE_ATTRIBUTES: [&str; 8] = [
    "write_cache",
    "fua",
    "scheduler",
    "nr_requests",
    "max_sectors_kb",
    "logical_block_size",
    "nomerges",
    "read_ahead_kb",
];

/// Opens the one file of a drive's FUSE mount, for direct I/O. Returns it with
/// the minor number of the FUSE connection.
///
/// # Errors
/// The kernel's error.
pub fn open_drive(mount: &DetachedMount) -> io::Result<(File, u32)> {
    let flags = OFlag::O_RDWR | OFlag::O_DIRECT | OFlag::O_CLOEXEC;
    let fd = openat(mount.as_fd(), FILE_NAME, flags, Mode::empty())?;
    let file = File::from(fd);
    let minor = libc::minor(file.metadata()?.dev());
    Ok((file, minor))
}

/// Attaches a drive that is to be recorded, and sets its queue.
///
/// # Errors
/// Names the call and the device.
pub fn attach(drive: BorrowedFd<'_>, settings: &DriveSettings) -> Result<LoopDevice, RunError> {
    let name = format!("{LOOP_NAME}{}", std::process::id());
    let device = LoopDevice::attach(drive, settings.logical_block_bytes, &name, Caching::Direct)
        .map_err(kernel_error("cannot attach the drive to a loop device"))?;
    set(&device, "max_sectors_kb", MAX_SECTORS_KB)?;
    report_cache(&device, settings)?;
    Ok(device)
}

/// Tells the host of the drive's cache: a crash image has to be recovered
/// under the same belief as it was recorded.
///
/// # Errors
/// Names the attribute and the device.
pub fn report_cache(device: &LoopDevice, settings: &DriveSettings) -> Result<(), RunError> {
    let wanted = match settings.write_cache_reported {
        WriteCacheReported::Back => "write back",
        WriteCacheReported::Through => "write through",
    };
    // The attribute outlives a detach: a number that was once told "write
    // through" still says so to whoever attaches it next. Written only where
    // it differs: setting one costs a freeze of the queue, as much as a mount.
    let now = device.queue("write_cache").map_err(kernel_error(format!(
        "cannot read write_cache of {}",
        device.path().display()
    )))?;
    if now == wanted {
        return Ok(());
    }
    set(device, "write_cache", wanted)
}

/// Detaches a device that [`report_cache`] was asked for. Loop devices belong
/// to the machine: none is handed back that tells its next user to leave out
/// flushes.
///
/// # Errors
/// The kernel's error.
pub fn release(device: LoopDevice, settings: &DriveSettings) -> io::Result<()> {
    if settings.write_cache_reported == WriteCacheReported::Through {
        device.set_queue("write_cache", "write back")?;
    }
    device.detach()
}

fn set(device: &LoopDevice, attribute: &str, value: &str) -> Result<(), RunError> {
    device
        .set_queue(attribute, value)
        .map_err(kernel_error(format!(
            "cannot set {attribute} of {}",
            device.path().display()
        )))
}

/// The queue settings of an attached device.
#[must_use]
pub fn queue_settings(device: &LoopDevice) -> BTreeMap<String, String> {
    QUEUE_ATTRIBUTES
        .iter()
        .filter_map(|name| {
            device
                .queue(name)
                .ok()
                .map(|value| ((*name).to_owned(), value))
        })
        .collect()
}
