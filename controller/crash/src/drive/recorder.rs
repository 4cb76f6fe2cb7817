//! The recorder: one lock, one order of events.
//!
//! Every submission and every completion is an event with a number. A
//! completion is logged and its number published in shared memory *before*
//! the command is answered, so that whoever sees the answer also sees the
//! position (design: acknowledgements without a message in between).

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plugpull_model::drive::{DiscardReads, DriveSettings, PlantedFault};
use plugpull_model::seams::PositionSource;
use plugpull_model::units::Position;

use crate::log::index::{Command, Kind, MAX_DATA_BYTES};
use crate::log::writer::{LogWriter, Payload};
use crate::serve::memory::SharedMemory;

/// What a discarded block reads as on a drive with `discard_reads = "pattern"`.
pub const DISCARD_PATTERN: u8 = 0xDB;

/// A command between its submission and its completion.
#[derive(Debug)]
#[must_use = "a command that is submitted has to complete"]
pub struct Ticket {
    kind: Kind,
    offset_bytes: u64,
    length_bytes: u64,
    submitted: u64,
    errno: u16,
}

impl Ticket {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

/// What a recording held so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecorderStatus {
    /// Events so far.
    pub events: u64,
    /// Position of the `base` mark, once it is set.
    pub base: Option<u64>,
    /// Most commands in flight at once since `base`.
    pub max_depth: u32,
    /// Set when the log could not be written: the trial is void.
    pub failed: Option<String>,
}

#[derive(Debug)]
struct State {
    events: u64,
    base: Option<u64>,
    in_flight: u32,
    max_depth: u32,
    log: Option<LogWriter>,
    failed: Option<String>,
}

/// The recorded drive.
#[derive(Debug)]
pub struct Recorder {
    settings: DriveSettings,
    medium: SharedMemory,
    positions: SharedMemory,
    state: Mutex<State>,
}

/// Reads the drive's position out of shared memory.
#[derive(Debug)]
pub struct PositionReader {
    memory: SharedMemory,
}

impl PositionReader {
    /// Over the memory that the drive publishes in.
    #[must_use]
    pub fn new(memory: SharedMemory) -> PositionReader {
        PositionReader { memory }
    }
}

impl PositionSource for PositionReader {
    fn position(&self) -> Position {
        published(&self.memory)
    }
}

impl PositionSource for Recorder {
    fn position(&self) -> Position {
        published(&self.positions)
    }
}

fn published(memory: &SharedMemory) -> Position {
    Position(
        memory
            .word(0)
            .map_or(0, |word| word.load(Ordering::Acquire)),
    )
}

fn publish(memory: &SharedMemory, events: u64) {
    if let Some(word) = memory.word(0) {
        word.store(events, Ordering::Release);
    }
}

impl Recorder {
    /// A drive of zeros that logs to these files. `positions` holds the
    /// published position in its first word.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new(
        size_bytes: u64,
        settings: DriveSettings,
        positions: SharedMemory,
        log: &Path,
        index: &Path,
    ) -> io::Result<Recorder> {
        Ok(Recorder {
            settings,
            medium: SharedMemory::new("plugpull-medium", size_bytes)?,
            positions,
            state: Mutex::new(State {
                events: 0,
                base: None,
                in_flight: 0,
                max_depth: 0,
                log: Some(LogWriter::create(log, index)?),
                failed: None,
            }),
        })
    }

    /// The drive's settings.
    #[must_use]
    pub fn settings(&self) -> &DriveSettings {
        &self.settings
    }

    /// Its size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.medium.len_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what completed commands left.
    ///
    /// # Errors
    /// EIO outside the drive, or on a dead device.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), i32> {
        if self.has_window_faults() && self.fault_at(&self.lock(), Kind::Flush) != 0 {
            return Err(libc::EIO);
        }
        if self.medium.read(offset, out) {
            Ok(())
        } else {
            Err(libc::EIO)
        }
    }

    /// A command arrives.
    pub fn submit(&self, kind: Kind, offset_bytes: u64, length_bytes: u64) -> Ticket {
        let mut state = self.lock();
        let mut errno = self.fault_at(&state, kind);
        let inside = offset_bytes
            .checked_add(length_bytes)
            .is_some_and(|end| end <= self.medium.len_bytes());
        let carries = matches!(kind, Kind::Write | Kind::WriteFua);
        if !inside || (carries && length_bytes > MAX_DATA_BYTES) {
            errno = libc::EIO.unsigned_abs() as u16;
        }
        let submitted = state.events;
        state.events += 1;
        state.in_flight += 1;
        if state.base.is_some() {
            state.max_depth = state.max_depth.max(state.in_flight);
        }
        publish(&self.positions, state.events);
        Ticket {
            kind,
            offset_bytes,
            length_bytes,
            submitted,
            errno,
        }
    }

    /// A command ends: it takes effect, is logged, and its position is
    /// published. `data` is what a WRITE carries, else empty.
    ///
    /// # Errors
    /// The planted error, or EIO when the log can no longer be written: a
    /// drive that cannot record must not acknowledge.
    pub fn complete(&self, ticket: Ticket, data: &[u8]) -> Result<(), i32> {
        let mut state = self.lock();
        if ticket.errno == 0 {
            self.apply(&ticket, data);
        }
        let command = Command {
            kind: ticket.kind,
            offset_bytes: ticket.offset_bytes,
            length_bytes: ticket.length_bytes,
            submitted: ticket.submitted,
            completed: state.events,
            data_at: 0,
            completed_ns: monotonic_ns(),
            errno: ticket.errno,
        };
        let payload = match ticket.kind {
            Kind::Write | Kind::WriteFua => Payload::Data(data),
            Kind::WriteZeroes => Payload::Zeros(ticket.length_bytes),
            Kind::Discard | Kind::Flush => Payload::None,
        };
        let logged = match &mut state.log {
            Some(log) => log.append(&command, payload).map_err(|e| e.to_string()),
            None => Err("the recording has ended".to_owned()),
        };
        state.in_flight -= 1;
        if let Err(why) = logged {
            state.failed.get_or_insert(why);
            return Err(libc::EIO);
        }
        state.events += 1;
        publish(&self.positions, state.events);
        drop(state);
        if ticket.errno == 0 {
            Ok(())
        } else {
            Err(i32::from(ticket.errno))
        }
    }

    fn apply(&self, ticket: &Ticket, data: &[u8]) {
        // In range: `submit` failed everything else.
        let _ = match ticket.kind {
            Kind::Write | Kind::WriteFua => self.medium.write(ticket.offset_bytes, data),
            Kind::WriteZeroes => self
                .medium
                .fill(ticket.offset_bytes, ticket.length_bytes, 0),
            Kind::Discard => match self.settings.discard_reads {
                DiscardReads::Zero => self
                    .medium
                    .fill(ticket.offset_bytes, ticket.length_bytes, 0),
                DiscardReads::Old => true,
                DiscardReads::Pattern => {
                    self.medium
                        .fill(ticket.offset_bytes, ticket.length_bytes, DISCARD_PATTERN)
                }
            },
            Kind::Flush => true,
        };
    }

    fn has_window_faults(&self) -> bool {
        self.settings
            .faults
            .iter()
            .any(|fault| matches!(fault, PlantedFault::DeadDevice { .. }))
    }

    /// The error that a planted fault gives a command submitted now; 0 = none.
    fn fault_at(&self, state: &State, kind: Kind) -> u16 {
        let Some(base) = state.base else { return 0 };
        let now = state.events.saturating_sub(base);
        let writes = !matches!(kind, Kind::Flush);
        let code = self.settings.faults.iter().find_map(|fault| match *fault {
            PlantedFault::WriteEio {
                from_event,
                to_event,
            } if writes && (from_event..to_event).contains(&now) => Some(libc::EIO),
            PlantedFault::WriteEnospc {
                from_event,
                to_event,
            } if writes && (from_event..to_event).contains(&now) => Some(libc::ENOSPC),
            PlantedFault::DeadDevice { from_event } if now >= from_event => Some(libc::EIO),
            _ => None,
        });
        code.map_or(0, |code| code.unsigned_abs() as u16)
    }

    /// Declares everything so far durable: lies, faults and cuts begin here.
    pub fn mark_base(&self) -> Position {
        let mut state = self.lock();
        state.base = Some(state.events);
        state.max_depth = state.in_flight;
        Position(state.events)
    }

    /// What the recording held so far.
    #[must_use]
    pub fn status(&self) -> RecorderStatus {
        let state = self.lock();
        RecorderStatus {
            events: state.events,
            base: state.base,
            max_depth: state.max_depth,
            failed: state.failed.clone(),
        }
    }

    /// Ends the recording and makes its files durable. Later commands fail.
    ///
    /// # Errors
    /// The operating system's error, or an earlier failure to log.
    pub fn finish(&self) -> io::Result<RecorderStatus> {
        let log = self.lock().log.take();
        let status = self.status();
        if let Some(why) = &status.failed {
            return Err(io::Error::other(why.clone()));
        }
        if let Some(log) = log {
            log.finish(
                self.size_bytes(),
                status.base.unwrap_or(status.events),
                status.max_depth,
            )?;
        }
        Ok(status)
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`: comparable between processes of one machine.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    if rc != 0 {
        return 0;
    }
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
