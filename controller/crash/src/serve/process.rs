//! The drive as its own process.
//!
//! The runner starts its own binary again (`plugpull drive`) with one end of a
//! socket as standard input. The process serves until the socket closes: the
//! death of the runner ends it, its own death only gives EIO to whoever waits
//! for it. It never waits on anything above it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plugpull_model::drive::DriveSettings;
use plugpull_model::units::Position;
use serde::{Deserialize, Serialize};

use crate::drive::recorder::{Recorder, RecorderStatus};
use crate::drive::service::QueuedDrive;
use crate::kernel::fork::spawn;
use crate::kernel::mount::DetachedMount;
use crate::kernel::socket::{receive, send};

use super::fuse::serve;
use super::images::ImageBackend;
use super::memory::{PageSet, SharedMemory};

/// Threads that serve a recorded drive: the depth that is seen without service times.
const RECORDING_THREADS: usize = 2;
/// Threads that serve crash images: recovery is sequential, unmount is not.
const IMAGE_THREADS: usize = 2;
/// `linux/prctl.h`; libc has no name for it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
/// How long a server may take to end once its socket is closed.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What a new process is to serve. Descriptors come with the messages: the
/// positions page with `Recording`, the image with `Images`, then the set of
/// written pages with `Pages`.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Recording {
        size_bytes: u64,
        settings: Box<DriveSettings>,
        log: PathBuf,
        index: PathBuf,
    },
    Images,
    Pages,
    MarkBase,
    Status,
    Finish,
}

#[derive(Debug, Serialize, Deserialize)]
enum Response {
    Serving,
    Base(Position),
    Status(RecorderStatus),
    Failed(String),
}

/// Why a drive process cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("cannot start the drive process {}: {source}; see that the plugpull binary is executable", program.display())]
    Start {
        /// The binary.
        program: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It ended, or the socket broke.
    #[error("the drive process (pid {pid}) is gone: {reason}; was it killed? run again")]
    Gone {
        /// Its process id.
        pid: u32,
        /// What was seen.
        reason: String,
    },
    /// It said why it cannot.
    #[error("the drive process cannot serve: {0}")]
    Refused(String),
    /// Shared memory or sockets could not be made.
    #[error("cannot set up a drive process: {0}; see `plugpull doctor`")]
    Setup(io::Error),
}

/// A running drive process, and the FUSE mount it serves.
#[derive(Debug)]
pub struct DriveProcess {
    child: Child,
    socket: Option<UnixStream>,
    mount: Option<DetachedMount>,
}

impl DriveProcess {
    /// Starts a process that records a drive.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn record(
        program: &Path,
        size_bytes: u64,
        settings: &DriveSettings,
        positions: &SharedMemory,
        log: &Path,
        index: &Path,
    ) -> Result<DriveProcess, ProcessError> {
        let mut process = Self::start(program)?;
        process.send(
            &Request::Recording {
                size_bytes,
                settings: Box::new(settings.clone()),
                log: log.to_owned(),
                index: index.to_owned(),
            },
            Some(positions.as_fd().as_raw_fd()),
        )?;
        process.take_mount()?;
        Ok(process)
    }

    /// Starts a process that serves crash images out of `image`.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn images(
        program: &Path,
        image: &SharedMemory,
        written: &PageSet,
    ) -> Result<DriveProcess, ProcessError> {
        let mut process = Self::start(program)?;
        process.send(&Request::Images, Some(image.as_fd().as_raw_fd()))?;
        process.send(&Request::Pages, Some(written.as_fd().as_raw_fd()))?;
        process.take_mount()?;
        Ok(process)
    }

    fn start(program: &Path) -> Result<DriveProcess, ProcessError> {
        let (ours, theirs) = UnixStream::pair().map_err(ProcessError::Setup)?;
        let mut command = Command::new(program);
        command
            .arg("drive")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        let child = spawn(&mut command).map_err(|source| ProcessError::Start {
            program: program.to_owned(),
            source,
        })?;
        Ok(DriveProcess {
            child,
            socket: Some(ours),
            mount: None,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is gone.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The mount that holds the one file.
    #[must_use]
    pub fn mount(&self) -> Option<&DetachedMount> {
        self.mount.as_ref()
    }

    fn gone(&self, reason: impl Into<String>) -> ProcessError {
        ProcessError::Gone {
            pid: self.child.id(),
            reason: reason.into(),
        }
    }

    fn send(&mut self, request: &Request, descriptor: Option<i32>) -> Result<(), ProcessError> {
        let message = serde_json::to_vec(request).map_err(|e| self.gone(e.to_string()))?;
        let Some(socket) = &mut self.socket else {
            return Err(self.gone("it was ended"));
        };
        send(socket, &message, descriptor).map_err(|e| self.gone(e.to_string()))
    }

    fn answer(&mut self) -> Result<(Response, Option<OwnedFd>), ProcessError> {
        let Some(socket) = &mut self.socket else {
            return Err(self.gone("it was ended"));
        };
        let (message, descriptor) = match receive(socket) {
            Ok(Some(received)) => received,
            Ok(None) => return Err(self.gone("its socket closed")),
            Err(e) => return Err(self.gone(e.to_string())),
        };
        match serde_json::from_slice(&message) {
            Ok(Response::Failed(why)) => Err(ProcessError::Refused(why)),
            Ok(response) => Ok((response, descriptor)),
            Err(e) => Err(self.gone(e.to_string())),
        }
    }

    fn take_mount(&mut self) -> Result<(), ProcessError> {
        match self.answer()? {
            (Response::Serving, Some(fd)) => {
                self.mount = Some(DetachedMount::from_fd(fd));
                Ok(())
            }
            _ => Err(self.gone("it sent no mount")),
        }
    }

    /// Declares everything so far durable.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn mark_base(&mut self) -> Result<Position, ProcessError> {
        self.send(&Request::MarkBase, None)?;
        match self.answer()? {
            (Response::Base(at), _) => Ok(at),
            _ => Err(self.gone("it answered something else")),
        }
    }

    /// What the recording held so far.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn status(&mut self) -> Result<RecorderStatus, ProcessError> {
        self.send(&Request::Status, None)?;
        self.expect_status()
    }

    /// Ends the recording; its files are durable when this returns.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn finish(&mut self) -> Result<RecorderStatus, ProcessError> {
        self.send(&Request::Finish, None)?;
        self.expect_status()
    }

    fn expect_status(&mut self) -> Result<RecorderStatus, ProcessError> {
        match self.answer()? {
            (Response::Status(status), _) => Ok(status),
            _ => Err(self.gone("it answered something else")),
        }
    }
}

impl Drop for DriveProcess {
    /// Closes the mount and the socket, and waits for the process to end; one
    /// that does not is ended by its pid.
    fn drop(&mut self) {
        self.mount = None;
        self.socket = None;
        let until = Instant::now() + END_WITHIN;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(_)) => return,
                Ok(None) => std::thread::sleep(Duration::from_micros(200)),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole life of a drive process. Returns when the socket closes.
///
/// # Errors
/// When standard input is no socket of a runner, or the socket breaks.
pub fn main() -> io::Result<()> {
    // SAFETY: standard input is open and nothing else of this process uses it.
    let mut socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    if socket.local_addr().is_err() {
        return Err(io::Error::other(
            "`plugpull drive` is started by plugpull itself, not by hand",
        ));
    }
    isolate();
    let Some((message, descriptor)) = receive(&mut socket)? else {
        return Ok(());
    };
    match begin(&mut socket, &message, descriptor) {
        Ok((mount, recorder)) => {
            respond(
                &mut socket,
                &Response::Serving,
                Some(mount.as_fd().as_raw_fd()),
            )?;
            // The runner's copy alone keeps the mount: when it goes, so does this process's work.
            drop(mount);
            attend(&mut socket, recorder.as_deref())
        }
        Err(why) => respond(&mut socket, &Response::Failed(why), None),
    }
}

/// No shared fate: an own session (no terminal's Ctrl-C), memory that is not
/// swapped out to a device above us, and no waiting on writeback above us when
/// memory is short. Each is best effort: without the right to do so the drive
/// still works.
fn isolate() {
    let _ = nix::unistd::setsid();
    // SAFETY: prctl and mlockall take integers. MCL_ONFAULT, since the FUSE
    // buffers are reserved far larger than they are ever used.
    unsafe {
        libc::prctl(PR_SET_IO_FLUSHER, 1u64, 0, 0, 0);
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
    }
}

type Begun = (DetachedMount, Option<Arc<Recorder>>);

fn begin(
    socket: &mut UnixStream,
    message: &[u8],
    descriptor: Option<OwnedFd>,
) -> Result<Begun, String> {
    let request: Request = serde_json::from_slice(message).map_err(|e| e.to_string())?;
    let descriptor = descriptor.ok_or("no descriptor came with the first message")?;
    match request {
        Request::Recording {
            size_bytes,
            settings,
            log,
            index,
        } => {
            let positions = SharedMemory::from_fd(descriptor).map_err(|e| e.to_string())?;
            let recorder = Recorder::new(size_bytes, *settings, positions, &log, &index)
                .map_err(|e| format!("cannot write the log {}: {e}", log.display()))?;
            let recorder = Arc::new(recorder);
            let drive = QueuedDrive::start(Arc::clone(&recorder)).map_err(|e| e.to_string())?;
            let mount = serve(drive, RECORDING_THREADS).map_err(|e| e.to_string())?;
            Ok((mount, Some(recorder)))
        }
        Request::Images => {
            let image = SharedMemory::from_fd(descriptor).map_err(|e| e.to_string())?;
            let pages = match receive(socket).map_err(|e| e.to_string())? {
                Some((_, Some(fd))) => PageSet::from_fd(fd).map_err(|e| e.to_string())?,
                _ => return Err("no page set came with the image".to_owned()),
            };
            let mount = serve(Arc::new(ImageBackend::new(image, pages)), IMAGE_THREADS)
                .map_err(|e| e.to_string())?;
            Ok((mount, None))
        }
        _ => Err("the first message says nothing to serve".to_owned()),
    }
}

fn respond(
    socket: &mut UnixStream,
    response: &Response,
    descriptor: Option<i32>,
) -> io::Result<()> {
    let message = serde_json::to_vec(response).map_err(io::Error::other)?;
    send(socket, &message, descriptor)
}

fn attend(socket: &mut UnixStream, recorder: Option<&Recorder>) -> io::Result<()> {
    while let Some((message, _)) = receive(socket)? {
        let request: Request = serde_json::from_slice(&message).map_err(io::Error::other)?;
        let response = match (request, recorder) {
            (Request::MarkBase, Some(recorder)) => Response::Base(recorder.mark_base()),
            (Request::Status, Some(recorder)) => Response::Status(recorder.status()),
            (Request::Finish, Some(recorder)) => match recorder.finish() {
                Ok(status) => Response::Status(status),
                Err(e) => Response::Failed(format!("cannot end the recording: {e}")),
            },
            (other, _) => Response::Failed(format!("{other:?} makes no sense here")),
        };
        respond(socket, &response, None)?;
    }
    Ok(())
}
