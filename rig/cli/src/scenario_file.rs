//! Reading a scenario from TOML, with errors that name the file, the line and the remedy.
//!
//! Every error is one line. Lines are exact: the document is parsed into a tree that keeps the
//! span of every key and value, and both serde's errors (which carry a span) and the planner's
//! (which carry a dotted path) are located in that tree.

mod explain;
mod locate;
pub(crate) mod nearest;
mod printable;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plugpull_model::plan::{Plan, PlanError};
use plugpull_model::scenario::{SCENARIO_SCHEMA, Scenario};
use plugpull_model::seed::Seed;
use plugpull_model::units::Size;
use plugpull_model::verdict::Exit;
use thiserror::Error;

use locate::Document;
use printable::printable;
pub(crate) use printable::{echo, words_of};

/// The largest scenario that is read. A plan of the most cells a run may hold is far below it;
/// anything larger is another kind of file.
pub const MAX_SCENARIO_BYTES: u64 = 1 << 20;

/// The most brackets and braces that may be open at once; a scenario needs three.
const MAX_NESTING: usize = 16;

/// The scenario that runs when none is named.
pub const QUICKSTART: &str = include_str!("../../../fixtures/scenarios/quickstart.toml");

/// A place in a scenario file; prints as `file:line`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as the user named it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", printable(&self.file), self.line)
    }
}

/// What is wrong with what the user asked for. Each message is one line that names the place and
/// the remedy.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error(
        "{}: cannot be read: {}; name a readable scenario file, or none to run the built-in \
         quickstart",
        printable(file),
        words_of(source)
    )]
    Unreadable {
        /// The file.
        file: String,
        /// The words of the system.
        source: io::Error,
    },
    /// The file is larger than [`MAX_SCENARIO_BYTES`].
    #[error(
        "{}: larger than {}, the most that a scenario may have; is it a scenario?",
        printable(file),
        Size(MAX_SCENARIO_BYTES)
    )]
    TooLarge {
        /// The file.
        file: String,
    },
    /// The file is not UTF-8.
    #[error("{place}: not UTF-8 text; save the file as UTF-8")]
    NotUtf8 {
        /// The first byte that is not.
        place: Place,
    },
    /// The text is not TOML.
    #[error("{place}: not valid TOML: {reason}")]
    Syntax {
        /// Where reading stopped.
        place: Place,
        /// What the parser expected.
        reason: String,
    },
    /// A key, a stack or a drive is there twice.
    #[error("{place}: {what}{}; remove or rename one", first_line(*first))]
    Duplicate {
        /// The second one.
        place: Place,
        /// What is there, as a sentence without its end.
        what: String,
        /// The line of the first one, where it is known.
        first: Option<usize>,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}` {table}; {hint}")]
    UnknownKey {
        /// The key's place.
        place: Place,
        /// The key.
        key: String,
        /// Where it stands, e.g. `in drives.volatile`.
        table: String,
        /// The nearest valid key.
        hint: String,
    },
    /// A value that its key does not take.
    #[error("{place}: {key}: unknown value `{value}`; {hint}")]
    UnknownValue {
        /// The value's place.
        place: Place,
        /// The dotted key.
        key: String,
        /// The value.
        value: String,
        /// The nearest valid value.
        hint: String,
    },
    /// A key without which nothing can run.
    #[error("{place}: missing key `{key}` {table}{remedy}")]
    MissingKey {
        /// The place of the table.
        place: Place,
        /// The key.
        key: String,
        /// Where it is missing, e.g. `in drives.volatile`.
        table: String,
        /// What to add; empty, or begins with a semicolon.
        remedy: String,
    },
    /// A value of a wrong type, or out of its range.
    #[error("{place}: {key} is {found}; it must be {expected}")]
    WrongType {
        /// The value's place.
        place: Place,
        /// The dotted key.
        key: String,
        /// What is there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A value that is well-formed and describes nothing that can run.
    #[error("{place}: {key}: {reason}")]
    Meaning {
        /// The place of the key; of the table it belongs to, where it is not given.
        place: Place,
        /// The dotted key.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// `PLUGPULL_REQUIRE` names no capability.
    #[error("PLUGPULL_REQUIRE: unknown capability `{name}`; {hint}")]
    UnknownCapability {
        /// The name.
        name: String,
        /// The nearest valid name and all names.
        hint: String,
    },
}

fn first_line(first: Option<usize>) -> String {
    first.map_or_else(String::new, |line| format!(", first on line {line}"))
}

impl ScenarioError {
    /// The exit code: what the user asked for is wrong.
    #[must_use]
    pub fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Where a scenario came from; prints as the file's name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The quickstart inside the binary.
    BuiltIn,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built-in quickstart.toml"),
            Origin::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A scenario with the text it was read from, so that later errors find their line.
#[derive(Clone, Debug)]
pub struct LoadedScenario {
    /// What the text says.
    pub scenario: Scenario,
    /// The text.
    pub text: String,
    /// Where it came from.
    pub origin: Origin,
}

/// Reads a scenario from `text`; `file` is its name in messages.
///
/// # Errors
/// The first thing that is wrong, in one line with file, line and remedy.
pub fn parse(text: &str, file: &str) -> Result<Scenario, ScenarioError> {
    if text.len() as u64 > MAX_SCENARIO_BYTES {
        return Err(ScenarioError::TooLarge {
            file: file.to_owned(),
        });
    }
    if let Some(offset) = locate::too_deep(text, MAX_NESTING) {
        return Err(ScenarioError::Syntax {
            place: Place {
                file: file.to_owned(),
                line: locate::line_at(text.as_bytes(), offset),
            },
            reason: format!(
                "more than {MAX_NESTING} brackets open at once; close the earlier ones"
            ),
        });
    }
    let document =
        Document::parse(text).map_err(|error| explain::syntax_error(text, file, &error))?;
    // A file of another schema is wrong as a whole: say so before anything else of it.
    if let Some((line, found)) = document.foreign_schema(SCENARIO_SCHEMA) {
        return Err(ScenarioError::Meaning {
            place: Place {
                file: file.to_owned(),
                line,
            },
            key: "schema".to_owned(),
            reason: format!("{found} is not known; this version reads schema = {SCENARIO_SCHEMA}"),
        });
    }
    explain::check_shapes(&document, file)?;
    toml::from_str(text).map_err(|error| explain::serde_error(&document, file, &error))
}

/// Reads the scenario at `path`; without one, the built-in quickstart.
///
/// # Errors
/// A file that is unreadable, too large, not UTF-8 or not a scenario: see [`parse`].
pub fn load(path: Option<&Path>) -> Result<LoadedScenario, ScenarioError> {
    let (text, origin) = match path {
        None => (QUICKSTART.to_owned(), Origin::BuiltIn),
        Some(path) => (read(path)?, Origin::File(path.to_owned())),
    };
    let scenario = parse(&text, &origin.to_string())?;
    Ok(LoadedScenario {
        scenario,
        text,
        origin,
    })
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|opened| {
        opened
            .take(MAX_SCENARIO_BYTES + 1)
            .read_to_end(&mut bytes)
            .map(|_| ())
    });
    if let Err(source) = read {
        return Err(ScenarioError::Unreadable { file, source });
    }
    if bytes.len() as u64 > MAX_SCENARIO_BYTES {
        return Err(ScenarioError::TooLarge { file });
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        ScenarioError::NotUtf8 {
            place: Place {
                file,
                line: locate::line_at(valid, valid.len()),
            },
        }
    })
}

/// Makes the plan of a scenario; `seed` overrides the scenario's own.
///
/// # Errors
/// The planner's error with the file and the line of the key it is about.
pub fn plan(loaded: &LoadedScenario, seed: Option<Seed>) -> Result<Plan, ScenarioError> {
    Plan::resolve(&loaded.scenario, seed).map_err(|error| located(loaded, error))
}

fn located(loaded: &LoadedScenario, error: PlanError) -> ScenarioError {
    let file = loaded.origin.to_string();
    match Document::parse(&loaded.text) {
        Ok(document) => explain::plan_error(&document, &file, &loaded.scenario, &error),
        // The text was parsed before; only a caller that changed it gets here.
        Err(syntax) => explain::syntax_error(&loaded.text, &file, &syntax),
    }
}
