//! One trial: the workload runs once on a cell's stack while the drive records.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plugpull_crash::drive::device::RecordedDevice;
use plugpull_crash::drive::recorder::{PositionReader, Recorder, RecorderStatus};
use plugpull_crash::kernel::kmsg::KernelLog;
use plugpull_crash::log::index::Kind;
use plugpull_crash::log::reader::Recording;
use plugpull_crash::log::writer::merge_marks;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::serve::process::DriveProcess;
use plugpull_generator::{
    LedgerFile, SharedLedger, WorkloadSummary, prepare_files, read_ledger, run_device, run_files,
};
use plugpull_model::event::RecordingSummary;
use plugpull_model::ledger::Ledger;
use plugpull_model::plan::PlannedCell;
use plugpull_model::seams::PositionSource;
use plugpull_model::stack::Filesystem;
use plugpull_model::units::Position;
use plugpull_record::RunId;

use crate::context::{Context, SetOnDrop};
use crate::error::{RunError, file_error, kernel_error, read_error};
use crate::stack::attach::{attach, open_drive, queue_settings, release};
use crate::stack::ext4;
use crate::stack::tool::Patience;

const ROOM: &str = "see that the disk has room and the folder is writable";
/// How long mkfs may take.
const MAKE_WITHIN: Duration = Duration::from_secs(300);
/// How long writers may take to end once they are told to: then the drive is ended.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The files of one trial.
#[derive(Clone, Debug)]
pub struct TrialFiles {
    /// The trial's folder.
    pub folder: PathBuf,
}

impl TrialFiles {
    /// In this folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> TrialFiles {
        TrialFiles { folder }
    }
    /// The write log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("writelog")
    }
    /// Its side-car.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.folder.join("writelog.idx")
    }
    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }
    /// The cut receipt: the last file of a recording, so its presence says that all are whole.
    #[must_use]
    pub fn cut(&self) -> PathBuf {
        self.folder.join("cut.json")
    }
    fn raw(&self) -> (PathBuf, PathBuf) {
        (
            self.folder.join("writelog.raw"),
            self.folder.join("writelog.raw.idx"),
        )
    }
}

/// How a recording ended.
#[derive(Debug)]
pub enum Recorded {
    /// It can be judged.
    Trial(Box<Trial>),
    /// The kernel will not mount the stack, in its own words.
    Refused(String),
}

/// A recorded trial.
#[derive(Debug)]
pub struct Trial {
    /// The commands.
    pub recording: Recording,
    /// What was issued and acknowledged.
    pub ledger: Ledger,
    /// What it held.
    pub summary: RecordingSummary,
}

/// The receipt of a simulated cut: software, so confirmed by construction.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct SimulatedCut {
    schema: u32,
    cutter: String,
    base: Position,
    last: Position,
    confirmed: String,
    summary: RecordingSummary,
}

/// Runs the workload of `cell` and records it into `files`.
///
/// # Errors
/// When the rig cannot do its job; a stack that does not mount is no error.
pub fn record(
    context: &Context,
    cell: &PlannedCell,
    run: RunId,
    files: &TrialFiles,
) -> Result<Recorded, RunError> {
    fs::create_dir_all(&files.folder).map_err(file_error("cannot create", &files.folder, ROOM))?;
    let ledger_file =
        File::create(files.ledger()).map_err(file_error("cannot create", files.ledger(), ROOM))?;
    let ledger_sync =
        ledger_file
            .try_clone()
            .map_err(file_error("cannot open", files.ledger(), ROOM))?;
    let ledger = LedgerFile::create(ledger_file).map_err(file_error(
        "cannot write",
        files.ledger(),
        ROOM,
    ))?;
    let ledger = SharedLedger::with_file(ledger);
    let raw = files.raw();
    let positions = SharedMemory::new("plugpull-positions", 4096)
        .map_err(kernel_error("cannot make shared memory"))?;
    let begun = match cell.stack.filesystem {
        Filesystem::None => record_raw(context, cell, run, positions, &raw, &ledger)?,
        Filesystem::Ext4 => match record_ext4(context, cell, run, positions, &raw, &ledger)? {
            Ok(begun) => begun,
            Err(words) => {
                let _ = fs::remove_dir_all(&files.folder);
                return Ok(Recorded::Refused(words));
            }
        },
    };
    ledger_sync
        .sync_all()
        .map_err(file_error("cannot sync", files.ledger(), ROOM))?;
    let ledger = ledger.into_ledger()?;
    let mut marks = vec![(begun.status.base.unwrap_or(0), "base".to_owned())];
    marks.extend(ledger.marks().into_iter().map(|(at, id)| {
        (
            at.0,
            format!("ack-{}-{}-{}", id.stream, id.sequence, id.version),
        )
    }));
    merge_marks((&raw.0, &raw.1), &marks, &files.log(), &files.index())?;
    for path in [&raw.0, &raw.1] {
        fs::remove_file(path).map_err(file_error("cannot remove", path, ROOM))?;
    }
    let recording = Recording::open(&files.log(), &files.index())?;
    let (base, last) = (
        Position(begun.status.base.unwrap_or(0)),
        begun.last(context, &ledger),
    );
    let (commands, max_depth) = seen(&recording, base, last);
    let summary = RecordingSummary {
        issued: ledger.issued(),
        acknowledged: ledger.acknowledged(),
        base,
        last_acknowledgement: last,
        commands,
        max_depth,
        latency_ns: begun.workload.latencies.summary(),
        requested_options: cell.stack.mount.clone(),
        effective_options: begun.effective_options,
        queue: begun.queue,
    };
    let cut = SimulatedCut {
        schema: 1,
        cutter: "simulated".to_owned(),
        base: summary.base,
        last: summary.last_acknowledgement,
        confirmed:
            "by construction: the drive is software and every crash image is built from its log"
                .to_owned(),
        summary: summary.clone(),
    };
    crate::run_dir::write_json(&files.cut(), &cut)?;
    Ok(Recorded::Trial(Box::new(Trial {
        recording,
        ledger,
        summary,
    })))
}

/// What the cut points see: commands completed between `base` and `last` by
/// kind, and the most that were in flight at once.
fn seen(recording: &Recording, base: Position, last: Position) -> (BTreeMap<String, u64>, u32) {
    let mut commands: BTreeMap<String, u64> = Kind::ALL
        .iter()
        .map(|kind| (kind.name().to_owned(), 0))
        .collect();
    let mut edges: BTreeMap<u64, i32> = BTreeMap::new();
    for command in recording.commands() {
        if command.completed < base.0 || command.submitted >= last.0 {
            continue;
        }
        edges.insert(command.submitted, 1);
        edges.insert(command.completed, -1);
        if command.completed < last.0 && command.errno == 0 {
            *commands.entry(command.kind.name().to_owned()).or_default() += 1;
        }
    }
    let (mut depth, mut most) = (0, 0);
    for (at, change) in edges {
        depth += change;
        if (base.0..last.0).contains(&at) {
            most = most.max(depth);
        }
    }
    (commands, u32::try_from(most).unwrap_or(0))
}

/// Reads a finished recording back.
///
/// # Errors
/// Names the file that is damaged.
pub fn load(files: &TrialFiles) -> Result<Trial, RunError> {
    let cut = files.cut();
    let text =
        fs::read(&cut).map_err(read_error(&cut, "the trial was never finished; run again"))?;
    let cut: SimulatedCut = serde_json::from_slice(&text).map_err(|e| RunError::RunDirectory {
        path: files.cut(),
        reason: e.to_string(),
        remedy: "the file is damaged; run again",
    })?;
    let path = files.ledger();
    let file =
        File::open(&path).map_err(read_error(&path, "see that the run directory is whole"))?;
    let ledger = read_ledger(BufReader::new(file)).map_err(|source| RunError::Ledger {
        path: path.clone(),
        source,
    })?;
    let recording = Recording::open(&files.log(), &files.index()).map_err(RunError::Recording)?;
    Ok(Trial {
        recording,
        ledger,
        summary: cut.summary,
    })
}

struct Begun {
    status: RecorderStatus,
    workload: WorkloadSummary,
    effective_options: String,
    queue: BTreeMap<String, String>,
}

impl Begun {
    /// The last cut point: the last acknowledgement, or the end of everything.
    fn last(&self, context: &Context, ledger: &Ledger) -> Position {
        if context.through_unmount {
            return Position(self.status.events);
        }
        ledger
            .last_acknowledgement()
            .unwrap_or(Position(self.status.base.unwrap_or(0)))
    }
}

fn record_raw(
    context: &Context,
    cell: &PlannedCell,
    run: RunId,
    positions: SharedMemory,
    raw: &(PathBuf, PathBuf),
    ledger: &SharedLedger,
) -> Result<Begun, RunError> {
    let recorder = Recorder::new(
        cell.stack.device_bytes,
        cell.drive.clone(),
        positions,
        &raw.0,
        &raw.1,
    )
    .map_err(file_error("cannot write the log", &raw.0, ROOM))?;
    recorder.mark_base();
    let device = RecordedDevice::new(&recorder);
    let workload = run_device(
        &device,
        run,
        &cell.workload,
        &recorder,
        ledger,
        &context.stop,
    )?;
    ledger.finish(recorder.position())?;
    context.go_on()?;
    let status = recorder
        .finish()
        .map_err(file_error("cannot end the log", &raw.0, ROOM))?;
    Ok(Begun {
        status,
        workload,
        effective_options: String::new(),
        queue: BTreeMap::new(),
    })
}

fn record_ext4(
    context: &Context,
    cell: &PlannedCell,
    run: RunId,
    positions: SharedMemory,
    raw: &(PathBuf, PathBuf),
    ledger: &SharedLedger,
) -> Result<Result<Begun, String>, RunError> {
    let size = cell.stack.device_bytes;
    let mut process = DriveProcess::record(
        &context.program,
        size,
        &cell.drive,
        &positions,
        &raw.0,
        &raw.1,
    )?;
    context.registry.drive(process.pid(), None);
    let positions = PositionReader::new(positions);
    let mount = process.mount().ok_or_else(|| RunError::Kernel {
        what: "the drive has no mount".to_owned(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    let (drive, minor) = open_drive(mount).map_err(kernel_error("cannot open the drive"))?;
    context.registry.drive(process.pid(), Some(minor));
    let device = attach(drive.as_fd(), &cell.drive)?;
    ext4::make(
        &cell.stack,
        &device.path(),
        Patience {
            within: MAKE_WITHIN,
            stop: &context.stop,
        },
    )?;
    let mut log = KernelLog::open();
    let mounted = match ext4::mount(&cell.stack, &device.path()) {
        Ok((mounted, _)) => mounted,
        Err(failure) => {
            let mut words = failure.messages;
            for line in ext4::kernel_lines(&mut log, &device.name(), true) {
                if !words.contains(&line) {
                    words.push(line);
                }
            }
            words.dedup();
            let errno = nix::errno::Errno::from_raw(failure.errno);
            let said = if words.is_empty() {
                String::new()
            } else {
                format!(": {}", words.join("; "))
            };
            return Ok(Err(format!("{} failed with {errno}{said}", failure.call)));
        }
    };
    let effective_options = ext4::effective_options(&device.name());
    let queue = queue_settings(&device);
    prepare_files(mounted.as_fd(), &cell.workload)?;
    mounted
        .syncfs()
        .map_err(kernel_error("syncfs of the stack failed"))?;
    process.mark_base()?;
    let pid = process.pid();
    let workload = with_watch(context, pid, || {
        run_files(
            mounted.as_fd(),
            run,
            &cell.workload,
            &positions,
            ledger,
            &context.stop,
        )
    })?;
    // Takes the stack down while the drive still works: what follows the last
    // acknowledgement is in the log and is not cut.
    ext4::unmount(mounted, &device.path()).map_err(kernel_error("cannot unmount the stack"))?;
    release(device, &cell.drive).map_err(kernel_error("cannot detach the recorded drive"))?;
    drop(drive);
    context.go_on()?;
    let status = process.finish()?;
    // Nothing was issued after the writers ended, so the ledger is complete to the log's end.
    ledger.finish(Position(status.events))?;
    Ok(Ok(Begun {
        status,
        workload,
        effective_options,
        queue,
    }))
}

/// Runs `work`; when the run is to stop and `work` does not, the drive is
/// ended, which gives EIO to whatever waits for it.
fn with_watch<T>(context: &Context, drive: u32, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stopped: Option<Instant> = None;
            while !done.load(Ordering::Relaxed) {
                if context.stopped()
                    && stopped.get_or_insert_with(Instant::now).elapsed() > STOP_WITHIN
                {
                    end(drive);
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let _end_watch = SetOnDrop(&done);
        work()
    })
}

/// Ends a drive process of ours by its pid.
pub(crate) fn end(drive: u32) {
    if let Ok(pid) = i32::try_from(drive) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
}

/// Whether a folder holds a finished recording.
#[must_use]
pub fn is_finished(folder: &Path) -> bool {
    TrialFiles::new(folder.to_owned()).cut().exists()
}
