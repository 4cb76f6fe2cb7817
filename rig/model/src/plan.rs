//! A plan: a pure function of a scenario and a seed, with every choice made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::drive::DriveSettings;
use crate::scenario::{Budget, CellSpec, ContractSpec, SCENARIO_SCHEMA, Scenario};
use crate::seed::Seed;
use crate::stack::{Filesystem, RecoveryStep, Stack, StackSpec};
use crate::units::{ByteOffset, SECTOR_BYTES, StreamId};
use crate::verdict::Role;
use crate::workload::{Acknowledge, AppendLog, PlannedWorkload, PlannedWriter, WorkloadSpec};

/// Version of `plan.json`.
pub const PLAN_SCHEMA: u32 = 1;

/// Most cells one run may hold; more is a slip of the pen.
pub const MAX_CELLS: usize = 4096;
/// Most writers of one workload.
pub const MAX_WRITERS: u32 = 256;
/// Most records of one workload.
pub const MAX_RECORDS: u64 = 16_000_000;
/// Largest record: the format's own bound.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// Largest device. Base images are sparse, yet a mistyped unit should not pass.
const MAX_DEVICE_BYTES: u64 = 64 << 30;
/// Smallest ext4 that holds a journal and a log.
const MIN_EXT4_BYTES: u64 = 8 << 20;

/// The run's plan: what `plan.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The seed of every choice.
    pub seed: Seed,
    /// What the workload asks of every stack.
    pub contract: ContractSpec,
    /// How much is looked at.
    pub budget: Budget,
    /// The cells, in the order they run and are reported.
    pub cells: Vec<PlannedCell>,
}

/// One cell with every choice made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCell {
    /// `<stack>@<drive>`; unique in the plan, and a folder name.
    pub id: String,
    /// The stack's name.
    pub stack_name: String,
    /// The drive's name.
    pub drive_name: String,
    /// What this cell is for.
    pub role: Role,
    /// The stack.
    pub stack: Stack,
    /// The drive.
    pub drive: DriveSettings,
    /// What is written.
    pub workload: PlannedWorkload,
    /// Seed of the sampled crash states.
    pub states_seed: Seed,
    /// Seed of the planted faults.
    pub faults_seed: Seed,
}

/// A scenario that describes no run. `path` is the dotted key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{path}`: {reason}")]
pub struct PlanError {
    /// Dotted path of the offending key, e.g. `drives.volatile.cache_bytes`.
    pub path: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

fn error(path: impl Into<String>, reason: impl Into<String>) -> PlanError {
    PlanError {
        path: path.into(),
        reason: reason.into(),
    }
}

/// Whether a name can be a folder and part of a cell's id.
fn check_name(path: &str, name: &str) -> Result<(), PlanError> {
    let fits = !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !name.starts_with('.');
    if fits {
        Ok(())
    } else {
        Err(error(
            path,
            format!("`{name}` is not a name: use 1 to 64 letters, digits, `-`, `_` or `.`"),
        ))
    }
}

impl Plan {
    /// Makes every choice. The same scenario and seed give the same plan, and
    /// [`Plan::to_json`] the same bytes.
    ///
    /// # Errors
    /// Names the key that describes nothing that can run.
    pub fn resolve(scenario: &Scenario, seed: Option<Seed>) -> Result<Plan, PlanError> {
        if scenario.schema != SCENARIO_SCHEMA {
            return Err(error(
                "schema",
                format!(
                    "{} is not known; this version reads schema = {SCENARIO_SCHEMA}",
                    scenario.schema
                ),
            ));
        }
        check_name("name", &scenario.name)?;
        check_budget(&scenario.budget)?;
        let seed = seed.unwrap_or(scenario.seed);
        let mut drives = BTreeMap::new();
        for (name, spec) in &scenario.drives {
            check_name(&format!("drives.{name}"), name)?;
            let drive = spec
                .resolve()
                .map_err(|e| error(format!("drives.{name}.{}", e.key), e.reason))?;
            drives.insert(name.as_str(), drive);
        }
        for name in scenario.stacks.keys() {
            check_name(&format!("stacks.{name}"), name)?;
        }
        let wanted = wanted_cells(scenario)?;
        let mut cells = Vec::with_capacity(wanted.len());
        for cell in wanted {
            let spec = scenario.stacks.get(&cell.stack).ok_or_else(|| {
                error(
                    cell.path.clone(),
                    unknown("stack", &cell.stack, scenario.stacks.keys()),
                )
            })?;
            let drive = drives.get(cell.drive.as_str()).ok_or_else(|| {
                error(
                    cell.path.clone(),
                    unknown("drive", &cell.drive, scenario.drives.keys()),
                )
            })?;
            let path = format!("stacks.{}", cell.stack);
            let WorkloadSpec::AppendLog(log) = &scenario.workload;
            let workload = plan_append_log(log, spec, &path)?;
            let stack = plan_stack(spec, &workload, drive, &path)?;
            let id = format!("{}@{}", cell.stack, cell.drive);
            let cell_seed = seed.derive(&id);
            cells.push(PlannedCell {
                stack_name: cell.stack,
                drive_name: cell.drive,
                role: cell.role,
                stack,
                drive: drive.clone(),
                workload,
                states_seed: cell_seed.derive("states"),
                faults_seed: cell_seed.derive("faults"),
                id,
            });
        }
        if !cells.iter().any(|cell| cell.role == Role::Subject) {
            return Err(error(
                "matrix",
                "no cell is a subject, so there is nothing to judge; list stacks and drives in `matrix`, or a `[[cells]]` without a role",
            ));
        }
        Ok(Plan {
            schema: PLAN_SCHEMA,
            scenario: scenario.name.clone(),
            seed,
            contract: scenario.contract,
            budget: scenario.budget,
            cells,
        })
    }

    /// The plan as `plan.json` holds it, with a final newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The run id that every record carries: the first 16 bytes of the BLAKE3
    /// hash of [`Plan::to_json`]. Never a clock.
    #[must_use]
    pub fn run_id(&self) -> plugpull_record::RunId {
        let digest = blake3::hash(self.to_json().as_bytes());
        let mut id = [0u8; 16];
        id.copy_from_slice(&digest.as_bytes()[..16]);
        plugpull_record::RunId(id)
    }

    /// The cell with this id.
    #[must_use]
    pub fn cell(&self, id: &str) -> Option<&PlannedCell> {
        self.cells.iter().find(|cell| cell.id == id)
    }
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<&str> = known.map(String::as_str).collect();
    format!(
        "no {what} is called `{name}`; there are: {}",
        known.join(", ")
    )
}

struct Wanted {
    stack: String,
    drive: String,
    role: Role,
    path: String,
}

/// The matrix in its order, then the single cells; a single cell that the
/// matrix holds already only changes its role.
fn wanted_cells(scenario: &Scenario) -> Result<Vec<Wanted>, PlanError> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for drive in &scenario.matrix.drives {
        for stack in &scenario.matrix.stacks {
            if wanted
                .iter()
                .any(|cell| cell.stack == *stack && cell.drive == *drive)
            {
                return Err(error(
                    "matrix",
                    format!("`{stack}` on `{drive}` is named twice"),
                ));
            }
            wanted.push(Wanted {
                stack: stack.clone(),
                drive: drive.clone(),
                role: Role::Subject,
                path: if scenario.stacks.contains_key(stack) {
                    "matrix.drives"
                } else {
                    "matrix.stacks"
                }
                .to_owned(),
            });
            if wanted.len() > MAX_CELLS {
                return Err(error("matrix", format!("more than {MAX_CELLS} cells")));
            }
        }
    }
    let mut single = Vec::<&CellSpec>::new();
    for spec in &scenario.cells {
        if single
            .iter()
            .any(|other| other.stack == spec.stack && other.drive == spec.drive)
        {
            return Err(error(
                "cells",
                format!("`{}` on `{}` is named twice", spec.stack, spec.drive),
            ));
        }
        single.push(spec);
        match wanted
            .iter_mut()
            .find(|cell| cell.stack == spec.stack && cell.drive == spec.drive)
        {
            Some(cell) => cell.role = spec.role,
            None => wanted.push(Wanted {
                stack: spec.stack.clone(),
                drive: spec.drive.clone(),
                role: spec.role,
                path: "cells".to_owned(),
            }),
        }
    }
    if wanted.is_empty() {
        return Err(error(
            "matrix",
            "the scenario names no cell; give `matrix` or `[[cells]]`",
        ));
    }
    if wanted.len() > MAX_CELLS {
        return Err(error("cells", format!("more than {MAX_CELLS} cells")));
    }
    Ok(wanted)
}

fn check_budget(budget: &Budget) -> Result<(), PlanError> {
    let rows = [
        (
            "exhaustive_states_per_cut",
            budget.exhaustive_states_per_cut,
            1 << 20,
        ),
        (
            "sampled_states_per_cut",
            budget.sampled_states_per_cut,
            1 << 20,
        ),
        ("images_per_cell", budget.images_per_cell, u32::MAX),
        ("use_every", budget.use_every, u32::MAX),
        ("hang_after_ms", budget.hang_after_ms, 3_600_000),
    ];
    for (key, value, most) in rows {
        if value == 0 || value > most {
            return Err(error(
                format!("budget.{key}"),
                format!("{value} is not from 1 to {most}"),
            ));
        }
    }
    Ok(())
}

fn plan_append_log(
    log: &AppendLog,
    spec: &StackSpec,
    stack_path: &str,
) -> Result<PlannedWorkload, PlanError> {
    let path = "workload.append-log";
    let bytes = log.record_bytes.0;
    if !(SECTOR_BYTES..=MAX_RECORD_BYTES).contains(&bytes) || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(error(
            format!("{path}.record_bytes"),
            format!("{bytes} is not a multiple of 512 from 512 to 1 MiB"),
        ));
    }
    if log.writers == 0 || log.writers > MAX_WRITERS {
        return Err(error(
            format!("{path}.writers"),
            format!("{} is not from 1 to {MAX_WRITERS}", log.writers),
        ));
    }
    let records = u64::from(log.writers) * u64::from(log.records_per_writer);
    if log.records_per_writer == 0 || records > MAX_RECORDS {
        return Err(error(
            format!("{path}.records_per_writer"),
            format!("{records} records in all; there must be from 1 to {MAX_RECORDS}"),
        ));
    }
    let raw = spec.filesystem == Filesystem::None;
    let (acknowledge, at) = match spec.acknowledge {
        Some(acknowledge) => (acknowledge, format!("{stack_path}.acknowledge")),
        None => (
            log.acknowledge,
            if raw {
                format!("{stack_path}.acknowledge")
            } else {
                format!("{path}.acknowledge")
            },
        ),
    };
    let on_raw = matches!(acknowledge, Acknowledge::Flush | Acknowledge::Fua);
    if acknowledge != Acknowledge::None && on_raw != raw {
        return Err(error(
            at,
            if raw {
                "a stack without a file system acknowledges by `flush`, `fua` or `none`; set it in the stack"
            } else {
                "a file system acknowledges by `fsync`, `fdatasync`, `o-sync`, `o-dsync` or `none`"
            },
        ));
    }
    let writers = (0..log.writers)
        .map(|index| PlannedWriter {
            stream: StreamId(index),
            object: if raw {
                "device".to_owned()
            } else {
                format!("log-{index}")
            },
            first_address: ByteOffset(if raw {
                u64::from(index) * u64::from(log.records_per_writer) * bytes
            } else {
                0
            }),
            records: log.records_per_writer,
        })
        .collect();
    let stretched_us = u64::from(log.minimum_ms) * 1000 / u64::from(log.records_per_writer);
    let pause_us = u64::from(log.pause_us).max(stretched_us);
    Ok(PlannedWorkload {
        // Bounded by MAX_RECORD_BYTES above.
        record_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        writers,
        file: log.file,
        acknowledge,
        direct: log.direct,
        pause_us: u32::try_from(pause_us).map_err(|_| {
            error(
                format!("{path}.minimum_ms"),
                "a pause above 71 minutes between records",
            )
        })?,
    })
}

fn plan_stack(
    spec: &StackSpec,
    workload: &PlannedWorkload,
    drive: &DriveSettings,
    path: &str,
) -> Result<Stack, PlanError> {
    let device = spec.device_bytes.0;
    let device_path = format!("{path}.device_bytes");
    if device == 0 || device > MAX_DEVICE_BYTES || !device.is_multiple_of(4096) {
        return Err(error(
            device_path,
            format!(
                "{} is not a multiple of 4096 up to 64 GiB",
                spec.device_bytes
            ),
        ));
    }
    let data = workload.records() * u64::from(workload.record_bytes);
    let block = drive.logical_block_bytes;
    match spec.filesystem {
        Filesystem::None => {
            if data > device {
                return Err(error(
                    device_path,
                    format!("{data} bytes of records do not fit in {device}"),
                ));
            }
            if !workload.record_bytes.is_multiple_of(block) {
                return Err(error(
                    format!("{path}.filesystem"),
                    format!(
                        "a record of {} bytes is not a multiple of the drive's logical block of {block}",
                        workload.record_bytes
                    ),
                ));
            }
            if !spec.mount.is_empty() || !spec.mkfs.is_empty() {
                return Err(error(
                    path,
                    "a stack without a file system takes no `mkfs` and no `mount`",
                ));
            }
            if spec.recovery != ["mount"] {
                return Err(error(
                    format!("{path}.recovery"),
                    "a stack without a file system has no recovery",
                ));
            }
        }
        Filesystem::Ext4 => {
            if device < MIN_EXT4_BYTES {
                return Err(error(
                    device_path,
                    "ext4 with a journal needs at least 8 MiB",
                ));
            }
            if data > device / 2 {
                return Err(error(
                    device_path,
                    format!(
                        "{data} bytes of records need a device of at least twice that; it has {device}"
                    ),
                ));
            }
            if workload.direct && !workload.record_bytes.is_multiple_of(block) {
                return Err(error(
                    "workload.append-log.direct",
                    format!("O_DIRECT needs records in multiples of the logical block of {block}"),
                ));
            }
        }
    }
    Ok(Stack {
        filesystem: spec.filesystem,
        device_bytes: device,
        mkfs: spec.mkfs.clone(),
        mount: spec.mount.clone(),
        recovery: plan_recovery(&spec.recovery, &format!("{path}.recovery"))?,
    })
}

fn plan_recovery(steps: &[String], path: &str) -> Result<Vec<RecoveryStep>, PlanError> {
    let planned: Vec<RecoveryStep> = steps
        .iter()
        .map(|step| match step.trim() {
            "mount" => Ok(RecoveryStep::Mount),
            "" => Err(error(path, "an empty step")),
            words => Ok(RecoveryStep::Command(
                words.split_whitespace().map(str::to_owned).collect(),
            )),
        })
        .collect::<Result<_, _>>()?;
    let mounts = planned
        .iter()
        .filter(|step| **step == RecoveryStep::Mount)
        .count();
    if mounts != 1 || planned.last() != Some(&RecoveryStep::Mount) {
        return Err(error(
            path,
            "a recovery ends with `mount`, and holds it once; for example [\"e2fsck -p\", \"mount\"]",
        ));
    }
    Ok(planned)
}
