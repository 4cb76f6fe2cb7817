//! The run directory: everything a run leaves, and what `--resume` goes on from.
//!
//! Files are written to a temporary name, synced, renamed, and the folder
//! synced. Events are appended as they happen; every report is a fold over
//! them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use plugpull_model::event::Event;
use plugpull_model::plan::Plan;
use plugpull_model::units::Trial;
use plugpull_reports::read_events_file;
use serde::Serialize;

use crate::error::{RunError, file_error, read_error};
use crate::trial::TrialFiles;

pub(crate) const ROOM: &str = "see that the disk has room and the folder is writable";
const WHOLE: &str = "see that the run directory is whole and readable";
/// Largest plan.json that is read back: 4096 cells at a few kB each.
const MAX_PLAN_BYTES: u64 = 64 << 20;

/// An open run directory. One process at a time: it is locked.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    events: File,
    _lock: Flock<File>,
}

/// Writes a file whole: temporary name, sync, rename, sync of the folder.
///
/// # Errors
/// Names the file.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let write = || -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(file_error("cannot write", path, ROOM))
}

/// Writes a value as JSON with a final newline.
///
/// # Errors
/// Names the file.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), RunError> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(io::Error::other)
        .map_err(file_error(
            "cannot encode",
            path,
            "this is a bug of plugpull",
        ))?;
    bytes.push(b'\n');
    write_file(path, &bytes)
}

impl RunDir {
    /// Creates a run directory; refuses one that holds a run already.
    ///
    /// # Errors
    /// Names the folder or file and the remedy.
    pub fn create(path: &Path, plan: &Plan) -> Result<RunDir, RunError> {
        if path.join("plan.json").exists() {
            return Err(RunError::RunDirectory {
                path: path.to_owned(),
                reason: "it holds a run already".to_owned(),
                remedy: "give another --out, or go on with --resume",
            });
        }
        fs::create_dir_all(path).map_err(file_error("cannot create", path, ROOM))?;
        let lock = lock(path)?;
        write_file(&path.join("plan.json"), plan.to_json().as_bytes())?;
        let name = path.join("events.jsonl");
        let events = File::create(&name).map_err(file_error("cannot create", &name, ROOM))?;
        Ok(RunDir {
            path: path.to_owned(),
            events,
            _lock: lock,
        })
    }

    /// Opens a run directory to go on with it: the plan and the events so far.
    ///
    /// # Errors
    /// Names the file that is missing or damaged.
    pub fn resume(path: &Path) -> Result<(RunDir, Plan, Vec<Event>), RunError> {
        let plan = read_plan(path)?;
        let lock = lock(path)?;
        let name = path.join("events.jsonl");
        let read = read_all_events(&name)?;
        let mut events = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&name)
            .map_err(file_error("cannot open", &name, ROOM))?;
        // A half line of a killed run would spoil the next one.
        let prepare = |events: &mut File| -> io::Result<()> {
            events.set_len(read.whole_bytes)?;
            events.seek(SeekFrom::End(0))?;
            if !read.ends_with_newline && read.whole_bytes > 0 {
                events.write_all(b"\n")?;
            }
            Ok(())
        };
        prepare(&mut events).map_err(file_error("cannot write", &name, ROOM))?;
        Ok((
            RunDir {
                path: path.to_owned(),
                events,
                _lock: lock,
            },
            plan,
            read.events,
        ))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one event; it is with the kernel when this returns, so that
    /// SIGKILL of this process does not lose it.
    ///
    /// # Errors
    /// Names the file.
    pub fn append(&mut self, event: &Event) -> Result<(), RunError> {
        let path = self.path.join("events.jsonl");
        let mut line = serde_json::to_vec(event)
            .map_err(io::Error::other)
            .map_err(file_error(
                "cannot encode an event for",
                &path,
                "this is a bug of plugpull",
            ))?;
        line.push(b'\n');
        self.events
            .write_all(&line)
            .map_err(file_error("cannot write", &path, ROOM))
    }

    /// Makes the events so far durable.
    ///
    /// # Errors
    /// Names the file.
    pub fn sync(&self) -> Result<(), RunError> {
        self.events.sync_data().map_err(file_error(
            "cannot sync",
            self.path.join("events.jsonl"),
            ROOM,
        ))
    }

    /// The files of a cell's trial.
    #[must_use]
    pub fn trial(&self, cell: &str, trial: Trial) -> TrialFiles {
        trial_files(&self.path, cell, trial)
    }

    /// Writes `manifest.json`: every file with its length and BLAKE3 digest.
    ///
    /// # Errors
    /// Names the file.
    pub fn write_manifest(&self) -> Result<(), RunError> {
        let mut files = Vec::new();
        list(&self.path, &self.path, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        write_json(
            &self.path.join("manifest.json"),
            &Manifest { schema: 1, files },
        )
    }
}

#[derive(Serialize)]
struct Manifest {
    schema: u32,
    files: Vec<ManifestFile>,
}

#[derive(Serialize)]
struct ManifestFile {
    path: String,
    length_bytes: u64,
    blake3: String,
}

fn list(root: &Path, folder: &Path, out: &mut Vec<ManifestFile>) -> Result<(), RunError> {
    let read = |path: &Path| -> io::Result<(u64, String)> {
        let mut hasher = blake3::Hasher::new();
        let mut file = File::open(path)?;
        let mut buffer = vec![0u8; 1 << 16];
        let mut length = 0;
        loop {
            let got = file.read(&mut buffer)?;
            if got == 0 {
                return Ok((length, hasher.finalize().to_hex().to_string()));
            }
            hasher.update(&buffer[..got]);
            length += got as u64;
        }
    };
    let entries = fs::read_dir(folder).map_err(file_error("cannot read", folder, WHOLE))?;
    for entry in entries {
        let path = entry
            .map_err(file_error("cannot read", folder, WHOLE))?
            .path();
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            list(root, &path, out)?;
        } else if name != "manifest.json" && name != "lock" {
            let (length_bytes, blake3) =
                read(&path).map_err(file_error("cannot read", &path, WHOLE))?;
            out.push(ManifestFile {
                path: name,
                length_bytes,
                blake3,
            });
        }
    }
    Ok(())
}

/// The files of a cell's trial in the run directory at `root`.
#[must_use]
pub fn trial_files(root: &Path, cell: &str, trial: Trial) -> TrialFiles {
    TrialFiles::new(root.join("cells").join(cell).join(trial.to_string()))
}

/// Reads the plan of a run directory.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn read_plan(path: &Path) -> Result<Plan, RunError> {
    let name = path.join("plan.json");
    let not_one = |reason: String| RunError::RunDirectory {
        path: name.clone(),
        reason,
        remedy: "give the folder that `plugpull run --out` made",
    };
    let length = fs::metadata(&name)
        .map_err(|e| not_one(e.to_string()))?
        .len();
    if length > MAX_PLAN_BYTES {
        return Err(not_one(format!("{length} bytes are too many for a plan")));
    }
    let text = fs::read(&name).map_err(|e| not_one(e.to_string()))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|e| not_one(e.to_string()))?;
    if plan.schema != plugpull_model::plan::PLAN_SCHEMA {
        return Err(not_one(format!("schema {} is not known", plan.schema)));
    }
    Ok(plan)
}

/// Reads the events of a run directory.
///
/// # Errors
/// Names the file and the line.
pub fn read_all_events(name: &Path) -> Result<plugpull_reports::EventsFile, RunError> {
    let file = File::open(name).map_err(read_error(name, WHOLE))?;
    read_events_file(BufReader::new(file)).map_err(|source| RunError::Events {
        path: name.to_owned(),
        source,
    })
}

fn lock(path: &Path) -> Result<Flock<File>, RunError> {
    let name = path.join("lock");
    let file = File::create(&name).map_err(file_error("cannot create", &name, ROOM))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| RunError::RunDirectory {
        path: path.to_owned(),
        reason: "another plugpull process uses it".to_owned(),
        remedy: "wait for it to end",
    })
}
