//! `plugpull bench`: speed as ratios, each baseline measured in the same run.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plugpull_crash::drive::recorder::PositionReader;
use plugpull_crash::kernel::fork::let_go;
use plugpull_crash::kernel::loopdev::{Caching, LoopDevice};
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::serve::process::DriveProcess;
use plugpull_crash::state::CrashState;
use plugpull_crash::state::enumerate::{Limits, crash_states};
use plugpull_crash::state::explorer::{DurableChange, Explorer, replay_to_base, unit_bytes};
use plugpull_crash::state::image::WorkingImage;
use plugpull_generator::{SharedLedger, prepare_files, read_files, run_files};
use plugpull_model::plan::{Plan, PlannedCell};
use plugpull_model::seed::Seed;
use plugpull_model::verdict::Exit;
use plugpull_record::RunId;
use serde::Serialize;

use crate::context::Context;
use crate::error::{RunError, kernel_error};
use crate::judge::Observer;
use crate::judge::ext4::{Ext4Observer, Watch};
use crate::registry::LOOP_NAME;
use crate::runner::check_capabilities;
use crate::scenario_file::{LoadedScenario, Origin, parse, plan};
use crate::stack::attach::{attach, open_drive};
use crate::stack::ext4;
use crate::stack::tool::Patience;
use crate::trial::{Recorded, Trial, TrialFiles, record};

/// Crash images of one measurement: half a second's worth and more.
const IMAGES: u32 = 400;
/// A tool that takes longer is ended.
const HANG_AFTER: Duration = Duration::from_secs(60);
/// Records of one recording measurement.
const RECORDS: u32 = 2000;
/// Alternating rounds; the median counts.
const ROUNDS: usize = 5;

/// One measured figure beside its baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Plugpull's own figure.
    pub value: f64,
    /// Of both.
    pub unit: &'static str,
    /// What it is held against.
    pub baseline: &'static str,
    /// That figure, measured in the same run.
    pub baseline_value: f64,
    /// `value / baseline_value`.
    pub ratio: f64,
}

/// Every benchmark's name.
pub const NAMES: [&str; 3] = ["crash-images-ext4-10", "crash-images-ext4-60", "recording"];

/// Runs the benchmarks whose names begin with one of `names`, or all.
///
/// # Errors
/// When a name is unknown, or the rig cannot do its job.
pub fn run(
    context: &Context,
    names: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<Exit, RunError> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !NAMES.iter().any(|known| known.starts_with(name.as_str())))
    {
        return Err(RunError::Usage(format!(
            "no benchmark is called `{unknown}`; there are: {}",
            NAMES.join(", ")
        )));
    }
    let folder = std::env::temp_dir().join(format!("plugpull-bench-{}", std::process::id()));
    let mut figures = Vec::new();
    for name in NAMES {
        if !names.is_empty() && !names.iter().any(|wanted| name.starts_with(wanted.as_str())) {
            continue;
        }
        let figure = match name {
            "recording" => recording(context, &folder.join(name)),
            "crash-images-ext4-10" => crash_images(context, &folder.join(name), name, 10),
            _ => crash_images(context, &folder.join(name), name, 60),
        };
        let _ = std::fs::remove_dir_all(&folder);
        let figure = figure?;
        if !json {
            let _ = writeln!(
                out,
                "{:<22} {:>9.1} {}  {}: {:.1}  ratio {:.2}",
                figure.name,
                figure.value,
                figure.unit,
                figure.baseline,
                figure.baseline_value,
                figure.ratio
            );
        }
        figures.push(figure);
    }
    if json {
        let _ = writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&figures).unwrap_or_default()
        );
    }
    Ok(Exit::Upheld)
}

/// A plan with one ext4 cell.
fn planned(mount: &str, records: u32, acknowledge: &str) -> Result<Plan, RunError> {
    let text = format!(
        r#"
schema = 1
name = "bench"
[workload.append-log]
records_per_writer = {records}
acknowledge = "{acknowledge}"
[stacks.ext4]
filesystem = "ext4"
device_bytes = "64 MiB"
mkfs = ["-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]
mount = "{mount}"
[drives.drive]
cache = "volatile"
[matrix]
stacks = ["ext4"]
drives = ["drive"]
"#
    );
    let loaded = LoadedScenario {
        scenario: parse(&text, "bench.toml")?,
        text,
        origin: Origin::BuiltIn,
    };
    let plan = plan(&loaded, Some(Seed(1)))?;
    check_capabilities(&plan)?;
    Ok(plan)
}

fn only_cell(plan: &Plan) -> Result<&PlannedCell, RunError> {
    plan.cells
        .first()
        .ok_or_else(|| RunError::Usage("the benchmark's plan has no cell".to_owned()))
}

/// Crash images of a 64 MiB ext4 with `pending` records not yet durable at the
/// cut, recovered and read: against attach, mount, read, unmount, detach of the
/// same images written out to memory beforehand, by as many workers.
fn crash_images(
    context: &Context,
    folder: &Path,
    name: &str,
    pending: u32,
) -> Result<Figure, RunError> {
    let plan = planned("barrier=0", pending, "fdatasync")?;
    let cell = only_cell(&plan)?;
    let Recorded::Trial(trial) = record(
        context,
        cell,
        plan.run_id(),
        &TrialFiles::new(folder.to_owned()),
    )?
    else {
        return Err(RunError::Usage(
            "the benchmark's stack does not mount".to_owned(),
        ));
    };
    let base = SharedMemory::new("plugpull-base", trial.recording.header().device_bytes)
        .map_err(kernel_error("cannot make memory"))?;
    replay_to_base(&trial.recording, &cell.drive, &base);
    let mut explorer = Explorer::new(&trial.recording, &cell.drive, &base, cell.faults_seed);
    while explorer.position() < trial.summary.last_acknowledgement.0 {
        explorer.step();
    }
    let limits = Limits {
        exhaustive: 0,
        sampled: IMAGES,
    };
    let states = crash_states(&mut explorer, limits, Seed(1)).states;
    let changes = explorer.changes().to_vec();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        context.go_on()?;
        bare.push(bare_rate(context, cell, &trial, &base, &changes, &states)?);
        ours.push(our_rate(
            context,
            cell,
            plan.run_id(),
            &trial,
            &base,
            &changes,
            &states,
        )?);
    }
    Ok(figure(
        name,
        "images/s",
        "bare mount loop",
        median(ours),
        median(bare),
    ))
}

fn our_rate(
    context: &Context,
    cell: &PlannedCell,
    run: RunId,
    trial: &Trial,
    base: &SharedMemory,
    changes: &[DurableChange],
    states: &[CrashState],
) -> Result<f64, RunError> {
    let watches: Vec<Watch> = (0..context.jobs).map(|_| Watch::default()).collect();
    let mut observers = Vec::new();
    for watch in &watches {
        let mut observer = Ext4Observer::new(
            context,
            cell,
            run,
            &trial.recording,
            base,
            watch,
            HANG_AFTER,
        )
        .map_err(kernel_error("cannot make memory"))?;
        // Starting the server is not part of an image.
        if let Some(first) = states.first() {
            observer
                .observe(changes, first, false)
                .map_err(RunError::Usage)?;
        }
        observers.push(observer);
    }
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for mut observer in observers {
            let (next, failed) = (&next, &failed);
            scope.spawn(move || {
                while let Some(state) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match observer.observe(&[], state, false) {
                        Ok(observation) => {
                            let _ = plugpull_verify::inspect(cell, run, &observation);
                        }
                        Err(e) => {
                            *failed
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(e)
                        }
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    match failed
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
    {
        Some(e) => Err(RunError::Usage(e)),
        None => Ok(count(states.len()) / seconds),
    }
}

fn bare_rate(
    context: &Context,
    cell: &PlannedCell,
    trial: &Trial,
    base: &SharedMemory,
    changes: &[DurableChange],
    states: &[CrashState],
) -> Result<f64, RunError> {
    let memory = || kernel_error("cannot write the images out");
    let mut working =
        WorkingImage::new(&trial.recording, base, unit_bytes(&cell.drive)).map_err(memory())?;
    let mut images = Vec::new();
    for state in states {
        working.show(changes, state).map_err(memory())?;
        images.push(
            working
                .shown()
                .duplicate("plugpull-bare")
                .map_err(memory())?,
        );
    }
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<RunError>> = Mutex::new(None);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..context.jobs {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(e) = bare(cell, image) {
                        *failed
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(e);
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    match failed
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
    {
        Some(e) => Err(e),
        None => Ok(count(states.len()) / seconds),
    }
}

fn bare(cell: &PlannedCell, image: &SharedMemory) -> Result<(), RunError> {
    let device = LoopDevice::attach(
        image.as_fd(),
        cell.drive.logical_block_bytes,
        &loop_name(),
        Caching::Direct,
    )
    .map_err(kernel_error("cannot attach"))?;
    if let Ok((mounted, _)) = ext4::mount(&cell.stack, &device.path()) {
        let _ = read_files(mounted.as_fd(), &cell.workload);
        let_go(|| drop(mounted));
    }
    device.detach().map_err(kernel_error("cannot detach"))
}

fn loop_name() -> String {
    format!("{LOOP_NAME}{}", std::process::id())
}

/// Acknowledged 4 KiB fdatasync writes per second through the drive, against
/// the same on a plain loop device (as `losetup` makes it) over memory.
fn recording(context: &Context, folder: &Path) -> Result<Figure, RunError> {
    let plan = planned("barrier=1", RECORDS, "fdatasync")?;
    let cell = only_cell(&plan)?;
    std::fs::create_dir_all(folder).map_err(kernel_error("cannot make a folder"))?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        context.go_on()?;
        ours.push(recorded_rate(context, cell, plan.run_id(), folder)?);
        bare.push(plain_rate(context, cell, plan.run_id())?);
    }
    Ok(figure(
        "recording",
        "writes/s",
        "plain loop over tmpfs",
        median(ours),
        median(bare),
    ))
}

fn recorded_rate(
    context: &Context,
    cell: &PlannedCell,
    run: RunId,
    folder: &Path,
) -> Result<f64, RunError> {
    let positions =
        SharedMemory::new("plugpull-positions", 4096).map_err(kernel_error("memory"))?;
    let size = cell.stack.device_bytes;
    let (log, index) = (folder.join("log"), folder.join("idx"));
    let process = DriveProcess::record(
        &context.program,
        size,
        &cell.drive,
        &positions,
        &log,
        &index,
    )?;
    let mount = process
        .mount()
        .ok_or_else(|| RunError::Usage("the drive has no mount".to_owned()))?;
    let (drive, _) = open_drive(mount).map_err(kernel_error("cannot open the drive"))?;
    let device = attach(drive.as_fd(), &cell.drive)?;
    workload_rate(context, cell, run, device, &PositionReader::new(positions))
}

fn plain_rate(context: &Context, cell: &PlannedCell, run: RunId) -> Result<f64, RunError> {
    let memory = SharedMemory::new("plugpull-plain", cell.stack.device_bytes)
        .map_err(kernel_error("memory"))?;
    let positions =
        SharedMemory::new("plugpull-positions", 4096).map_err(kernel_error("memory"))?;
    let device = LoopDevice::attach(
        memory.as_fd(),
        cell.drive.logical_block_bytes,
        &loop_name(),
        Caching::Buffered,
    )
    .map_err(kernel_error("cannot attach"))?;
    workload_rate(context, cell, run, device, &PositionReader::new(positions))
}

fn workload_rate(
    context: &Context,
    cell: &PlannedCell,
    run: RunId,
    device: LoopDevice,
    positions: &PositionReader,
) -> Result<f64, RunError> {
    ext4::make(
        &cell.stack,
        &device.path(),
        Patience {
            within: HANG_AFTER,
            stop: &context.stop,
        },
    )?;
    let (mounted, _) = ext4::mount(&cell.stack, &device.path()).map_err(|failure| {
        RunError::Usage(format!("{} failed: errno {}", failure.call, failure.errno))
    })?;
    prepare_files(mounted.as_fd(), &cell.workload)?;
    let ledger = SharedLedger::in_memory();
    let began = Instant::now();
    let summary = run_files(
        mounted.as_fd(),
        run,
        &cell.workload,
        positions,
        &ledger,
        &context.stop,
    )?;
    let seconds = began.elapsed().as_secs_f64();
    let_go(|| drop(mounted));
    device.detach().map_err(kernel_error("cannot detach"))?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let acknowledged = summary.acknowledged as f64;
    Ok(acknowledged / seconds)
}

fn figure(
    name: &str,
    unit: &'static str,
    baseline: &'static str,
    value: f64,
    baseline_value: f64,
) -> Figure {
    Figure {
        name: name.to_owned(),
        value,
        unit,
        baseline,
        baseline_value,
        ratio: value / baseline_value,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn count(number: usize) -> f64 {
    number as f64
}
