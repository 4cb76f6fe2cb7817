//! ext4 stacks: the kernel's own mount on a freshly attached device.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use plugpull_crash::kernel::kmsg::{KernelLog, is_fault};
use plugpull_crash::kernel::loopdev::{Caching, LoopDevice};
use plugpull_crash::kernel::mount::DetachedMount;
use plugpull_crash::log::reader::Recording;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::serve::process::DriveProcess;
use plugpull_crash::state::CrashState;
use plugpull_crash::state::explorer::{DurableChange, unit_bytes};
use plugpull_crash::state::image::WorkingImage;
use plugpull_generator::{read_files, recover, use_files};
use plugpull_model::observation::{Observation, RecoveryOutcome, UseAfterRecovery};
use plugpull_model::plan::PlannedCell;
use plugpull_record::RunId;

use crate::context::Context;
use crate::stack::attach::{open_drive, release, report_cache};
use crate::stack::ext4;
use crate::stack::tool::Patience;
use crate::trial::end;

use super::Observer;

/// An image whose server died is judged again by a new one, this many times.
const MAX_TRIES: u32 = 3;

/// So many times an image has to hang before it is a finding: once may be the
/// machine's fault.
const HANGS_FOR_A_FINDING: u32 = 2;
/// The second look takes longer than recovery, and its slowness is no hang.
const USE_FACTOR: u32 = 4;
/// A gap between two looks at the clock counts as at most this: a machine that
/// was paused (Ctrl-Z, a suspended VM) has not been hanging.
const MOST_PER_LOOK: Duration = Duration::from_millis(50);

/// What an image's server was being used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Recovery,
    Use,
}

#[derive(Debug)]
struct Watched {
    server: u32,
    phase: Phase,
    counted: Duration,
    looked: Instant,
}

/// How long a recovery has taken, and the server whose end frees it.
#[derive(Debug, Default)]
pub struct Watch {
    current: Mutex<Option<Watched>>,
    hung: Mutex<Option<Phase>>,
}

impl Watch {
    fn begin(&self, server: u32, phase: Phase) {
        let watched = Watched {
            server,
            phase,
            counted: Duration::ZERO,
            looked: Instant::now(),
        };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(watched);
    }

    /// Ends the watch; gives back the phase that was ended by force.
    fn ended(&self) -> Option<Phase> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.hung
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Frees a recovery that takes longer than `most`, or a second look that
    /// takes four times that, by ending the image server.
    pub fn check(&self, most: Duration) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watched) = current.as_mut() else {
            return;
        };
        watched.counted += watched.looked.elapsed().min(MOST_PER_LOOK);
        watched.looked = Instant::now();
        let limit = match watched.phase {
            Phase::Recovery => most,
            Phase::Use => most * USE_FACTOR,
        };
        if watched.counted > limit {
            *self.hung.lock().unwrap_or_else(PoisonError::into_inner) = Some(watched.phase);
            end(watched.server);
            *current = None;
        }
    }
}

struct Server {
    process: DriveProcess,
    drive: File,
}

/// Mounts images.
pub struct Ext4Observer<'a> {
    context: &'a Context,
    cell: &'a PlannedCell,
    run: RunId,
    image: WorkingImage<'a>,
    log: KernelLog,
    watch: &'a Watch,
    server: Option<Server>,
    loop_number: Option<u32>,
    hang_after: Duration,
}

impl<'a> Ext4Observer<'a> {
    /// For one cell's recording. The server is started with the first image.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn new(
        context: &'a Context,
        cell: &'a PlannedCell,
        run: RunId,
        recording: &'a Recording,
        base: &'a SharedMemory,
        watch: &'a Watch,
        hang_after: Duration,
    ) -> std::io::Result<Ext4Observer<'a>> {
        Ok(Ext4Observer {
            context,
            cell,
            run,
            image: WorkingImage::new(recording, base, unit_bytes(&cell.drive))?,
            log: KernelLog::open(),
            watch,
            server: None,
            loop_number: None,
            hang_after,
        })
    }

    fn server(&mut self) -> Result<&Server, String> {
        if self.server.is_none() {
            let process = DriveProcess::images(
                &self.context.program,
                self.image.shown(),
                self.image.written(),
            )
            .map_err(|e| e.to_string())?;
            let mount = process.mount().ok_or("the image server sent no mount")?;
            let (drive, minor) =
                open_drive(mount).map_err(|e| format!("cannot open the image: {e}"))?;
            self.context.registry.drive(process.pid(), Some(minor));
            self.server = Some(Server { process, drive });
        }
        self.server
            .as_ref()
            .ok_or_else(|| "no image server".to_owned())
    }

    /// A fresh attach: the device's caches are cold. The same number is taken
    /// again where it is still free, which spares a search.
    fn attach(&mut self) -> Result<LoopDevice, String> {
        let number = self.loop_number;
        let settings = &self.cell.drive;
        let server = self.server()?;
        let name = format!("{}{}", crate::registry::LOOP_NAME, std::process::id());
        let again = number.and_then(|number| {
            LoopDevice::attach_number(
                number,
                server.drive.as_fd(),
                settings.logical_block_bytes,
                &name,
                Caching::Direct,
            )
            .ok()
        });
        let device = match again {
            Some(device) => device,
            None => LoopDevice::attach(
                server.drive.as_fd(),
                settings.logical_block_bytes,
                &name,
                Caching::Direct,
            )
            .map_err(|e| format!("cannot attach a crash image: {e}"))?,
        };
        report_cache(&device, settings).map_err(|e| e.to_string())?;
        self.loop_number = Some(device.number());
        Ok(device)
    }

    fn look(&mut self, deep: bool) -> Result<Observation, String> {
        let device = self.attach()?;
        self.log.drain(|_| false);
        let (recovery, mut messages, mounted) =
            ext4::recover(&self.cell.stack, &device.path(), self.patience())?;
        let mut objects = Vec::new();
        let mut used = None;
        if let Some(mounted) = mounted {
            objects = read_files(mounted.as_fd(), &self.cell.workload);
            if deep {
                if let Some(server) = &self.server {
                    self.watch.begin(server.process.pid(), Phase::Use);
                }
                used = Some(self.use_once_more(&device, mounted)?);
            } else {
                ext4::unmount(mounted, &device.path()).map_err(still_mounted)?;
            }
        }
        let failed = recovery != RecoveryOutcome::Recovered;
        let lines = ext4::kernel_lines(&mut self.log, &device.name(), failed);
        release(device, &self.cell.drive)
            .map_err(|e| format!("cannot detach a crash image: {e}"))?;
        let kernel_faults = lines
            .iter()
            .filter(|line| is_fault(line))
            .cloned()
            .collect();
        for line in lines {
            if failed && !messages.contains(&line) {
                messages.push(line);
            }
        }
        let recovered = recover(self.run, &self.cell.workload, &objects);
        Ok(Observation {
            recovery,
            messages,
            kernel_faults,
            objects,
            recovered,
            used,
        })
    }

    /// A step of recovery that hangs is ended before the drive under it would
    /// be, so that its hang is seen as what it is.
    fn patience(&self) -> Patience<'a> {
        Patience {
            within: self.hang_after,
            stop: &self.context.stop,
        }
    }

    /// Fill, create, delete, remount, verify, unmount, check.
    fn use_once_more(
        &self,
        device: &LoopDevice,
        mounted: DetachedMount,
    ) -> Result<UseAfterRecovery, String> {
        let failed = use_files(mounted.as_fd(), self.cell.stack.device_bytes)
            .err()
            .map(|e| e.to_string());
        ext4::unmount(mounted, &device.path()).map_err(still_mounted)?;
        let (objects, failed) = match ext4::mount(&self.cell.stack, &device.path()) {
            Ok((again, _)) => {
                let objects = read_files(again.as_fd(), &self.cell.workload);
                ext4::unmount(again, &device.path()).map_err(still_mounted)?;
                (objects, failed)
            }
            Err(failure) => (
                Vec::new(),
                Some(format!(
                    "{} after use failed with errno {}: {}",
                    failure.call,
                    failure.errno,
                    failure.messages.join("; ")
                )),
            ),
        };
        let checker = ext4::check(&device.path(), self.patience()).map_err(|e| e.to_string())?;
        Ok(UseAfterRecovery {
            objects,
            checker: Some(checker),
            failed,
        })
    }
}

impl Observer for Ext4Observer<'_> {
    fn observe(
        &mut self,
        fresh: &[DurableChange],
        state: &CrashState,
        deep: bool,
    ) -> Result<Observation, String> {
        let mut last = String::new();
        let mut deep = deep;
        let mut hangs = 0;
        for _ in 0..MAX_TRIES {
            self.image
                .show(fresh, state)
                .map_err(|e| format!("cannot build a crash image: {e}"))?;
            let server = match self.server() {
                Ok(server) => server.process.pid(),
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            self.watch.begin(server, Phase::Recovery);
            let looked = self.look(deep);
            let by_force = self.watch.ended();
            if self.context.stopped() {
                return Err("interrupted".to_owned());
            }
            let dead = self.server.as_mut().is_none_or(|server| !answers(server));
            if dead {
                // Whatever was seen, was seen on a drive that had died.
                self.server = None;
                match by_force {
                    Some(Phase::Recovery) => hangs += 1,
                    // The first look is what the verdict needs.
                    Some(Phase::Use) => deep = false,
                    None => last = "the image server was killed".to_owned(),
                }
            } else {
                match looked {
                    Ok(observation) if observation.recovery == RecoveryOutcome::Hung => hangs += 1,
                    Ok(observation) => return Ok(observation),
                    Err(e) => last = e,
                }
            }
            if hangs >= HANGS_FOR_A_FINDING {
                return Ok(hung_observation());
            }
        }
        if hangs > 0 {
            last = format!("recovery hung {hangs} time of {MAX_TRIES} tries; {last}");
        }
        Err(last)
    }
}

/// Whether the server still serves. A server that was killed may not be a
/// zombie yet, but its connection is: EIO seen by the kernel comes from there.
fn answers(server: &mut Server) -> bool {
    let mut block = AlignedBlock([0; 4096]);
    server.drive.read_exact_at(&mut block.0, 0).is_ok() && !server.process.has_ended()
}

/// Direct I/O wants its buffer aligned to the logical block.
#[repr(align(4096))]
struct AlignedBlock([u8; 4096]);

fn still_mounted(e: std::io::Error) -> String {
    format!("cannot unmount a crash image: {e}")
}

fn hung_observation() -> Observation {
    Observation {
        recovery: RecoveryOutcome::Hung,
        messages: Vec::new(),
        kernel_faults: Vec::new(),
        objects: Vec::new(),
        recovered: plugpull_model::seams::Recovered::default(),
        used: None,
    }
}
