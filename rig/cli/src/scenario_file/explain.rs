//! Turns the errors of the parser, of serde and of the planner into one line with place and remedy.

use std::collections::BTreeSet;

use plugpull_model::drive::{DriveSpec, ServiceTimes};
use plugpull_model::plan::PlanError;
use plugpull_model::scenario::{Budget, CellSpec, ContractSpec, Matrix, Scenario};
use plugpull_model::stack::StackSpec;
use plugpull_model::workload::AppendLog;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::locate::{self, Document, Spot};
use super::nearest;
use super::printable::{echo, sentence};
use super::{Place, ScenarioError};

fn place(document: &Document<'_>, file: &str, offset: usize) -> Place {
    Place {
        file: file.to_owned(),
        line: document.line(offset),
    }
}

/// `in drives.volatile`, or `at the top level`.
fn within(table: &[String]) -> String {
    if table.is_empty() {
        "at the top level".to_owned()
    } else {
        format!("in {}", dotted(table))
    }
}

/// A path as TOML spells it: keys that are not bare in quotes.
fn dotted(path: &[String]) -> String {
    let keys: Vec<String> = path
        .iter()
        .map(|key| {
            let bare = !key.is_empty()
                && key
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            if bare {
                echo(key)
            } else {
                format!("\"{}\"", echo(key))
            }
        })
        .collect();
    keys.join(".")
}

/// What the TOML parser says.
pub(super) fn syntax_error(text: &str, file: &str, error: &toml::de::Error) -> ScenarioError {
    let at = |offset| locate::line_at(text.as_bytes(), offset);
    let line = error.span().map_or_else(
        || locate::first_failing_line(text, error.message()),
        |span| {
            // What is missing is missing where the text before it ends, be it lines above.
            let missing = [
                "missing comma between array elements",
                "missing key for inline table element",
            ];
            let is_gap = missing.iter().any(|gap| error.message().starts_with(gap));
            if is_gap {
                locate::line_before(text, span.start)
            } else {
                at(span.start)
            }
        },
    );
    let span = error.span().unwrap_or(0..0);
    let place = Place {
        file: file.to_owned(),
        line,
    };
    if error.message() != "duplicate key" {
        return ScenarioError::Syntax {
            place,
            reason: sentence(error.message()),
        };
    }
    match locate::duplicate(text, &span) {
        Some(duplicate) => {
            let key = echo(&duplicate.key);
            let table: Vec<&str> = duplicate.table.iter().map(String::as_str).collect();
            let what = match table.as_slice() {
                ["stacks"] => format!("the stack `{key}` is defined twice"),
                ["drives"] => format!("the drive `{key}` is defined twice"),
                _ => format!(
                    "the key `{key}` is given twice {}",
                    within(&duplicate.table)
                ),
            };
            ScenarioError::Duplicate {
                place,
                what,
                first: duplicate.first.map(at),
            }
        }
        None => ScenarioError::Duplicate {
            place,
            what: "a key is given twice".to_owned(),
            first: None,
        },
    }
}

/// Refuses arrays where a table belongs. serde takes an array for a struct, field by field, so
/// that `service = [20, 50]` would mean something, and `[[matrix]]` fail in words about its first
/// field.
pub(super) fn check_shapes(document: &Document<'_>, file: &str) -> Result<(), ScenarioError> {
    let must_be_table = |value: &Spanned<DeValue<'_>>, path: &[&str]| {
        if !value.get_ref().is_array() {
            return Ok(());
        }
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        let key = dotted(&path);
        let header = document.slice(value.span()).starts_with("[[");
        Err(ScenarioError::WrongType {
            place: place(document, file, value.span().start),
            found: if header {
                format!("an array of tables, `[[{key}]]`")
            } else {
                "an array".to_owned()
            },
            expected: if header {
                format!("one table, `[{key}]`")
            } else {
                "a table".to_owned()
            },
            key,
        })
    };
    let root = document.root();
    for key in [
        "workload", "stacks", "drives", "matrix", "contract", "budget",
    ] {
        if let Some((_, value)) = locate::entry(root, key) {
            must_be_table(value, &[key])?;
        }
    }
    for group in ["workload", "stacks", "drives"] {
        for (name, value) in children(root, group) {
            must_be_table(value, &[group, name])?;
            if let Some(service) = value.get_ref().as_table()
                && group == "drives"
                && let Some((_, service)) = locate::entry(service, "service")
            {
                must_be_table(service, &[group, name, "service"])?;
            }
        }
    }
    if let Some((_, cells)) = locate::entry(root, "cells")
        && let Some(cells) = cells.get_ref().as_array()
    {
        for cell in cells {
            must_be_table(cell, &["cells"])?;
        }
    }
    Ok(())
}

fn children<'d, 't>(
    root: &'d DeTable<'t>,
    group: &str,
) -> impl Iterator<Item = (&'d str, &'d Spanned<DeValue<'t>>)> {
    locate::entry(root, group)
        .and_then(|(_, value)| value.get_ref().as_table())
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.get_ref().as_ref(), value))
}

/// What serde says of a document that is valid TOML.
pub(super) fn serde_error(
    document: &Document<'_>,
    file: &str,
    error: &toml::de::Error,
) -> ScenarioError {
    let message = error.message();
    let span = error.span().unwrap_or(0..0);
    let place = place(document, file, span.start);
    let spot = document.spot(&span);
    let path = spot.as_ref().map_or(&[][..], |spot| &spot.path);

    if message.starts_with("unknown field `") || message.starts_with("unexpected keys in table: ") {
        return unknown_key(place, path, &valid_words(message));
    }
    if message.starts_with("unknown variant `") {
        let valid = valid_words(message);
        return match spot.as_ref().map(|spot| spot.value) {
            Some(DeValue::String(value)) => ScenarioError::UnknownValue {
                place,
                key: dotted(path),
                hint: value_hint(value, &valid),
                value: echo(value),
            },
            _ => unknown_key(place, path, &valid),
        };
    }
    if let Some(key) = quoted_after(message, "missing field `") {
        return ScenarioError::MissingKey {
            place,
            table: within(path),
            remedy: missing_remedy(key),
            key: echo(key),
        };
    }
    let Some(spot) = &spot else {
        return ScenarioError::Meaning {
            place,
            key: "the scenario".to_owned(),
            reason: sentence(message),
        };
    };
    if message.starts_with("wanted exactly 1 element") {
        return one_of(place, spot);
    }
    if message == "wanted string or table" {
        let names = variants_at(document, spot);
        return ScenarioError::WrongType {
            place,
            key: dotted(path),
            found: describe(document, spot),
            expected: if spot.path == ["workload"] {
                "a table `[workload.append-log]`".to_owned()
            } else if names.is_empty() {
                "a name in quotes".to_owned()
            } else {
                format!("one of {}", names.join(", "))
            },
        };
    }
    if message == "expected empty table" {
        let name = path.last().map_or("", String::as_str);
        return ScenarioError::Meaning {
            place,
            key: dotted(path),
            reason: format!("`{0}` has no keys; write \"{0}\" alone", echo(name)),
        };
    }
    if message == "invalid type: unit variant, expected struct variant"
        || message == "invalid type: unit variant, expected newtype variant"
    {
        return needs_table(place, spot);
    }
    if let DeValue::Integer(_) = spot.value
        && (message == "integer number overflowed" || message.contains("` as i128"))
    {
        return ScenarioError::Meaning {
            place,
            key: dotted(path),
            reason: format!(
                "{} is no integer of 64 bits, so it is no count and no size",
                echo(document.slice(spot.span.clone()))
            ),
        };
    }
    let wrong = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    if wrong && let Some((_, expected)) = message.rsplit_once(", expected ") {
        return ScenarioError::WrongType {
            place,
            key: dotted(path),
            found: describe(document, spot),
            expected: expectation(expected, spot),
        };
    }
    ScenarioError::Meaning {
        place,
        key: dotted(path),
        reason: with_size_hint(message, spot.value),
    }
}

/// The words in backticks after `expected`, or the list after `available keys:`.
fn valid_words(message: &str) -> Vec<&str> {
    if let Some((_, list)) = message.rsplit_once("available keys: ") {
        return list.split(", ").collect();
    }
    // The wrong word comes first and may hold anything; the list comes last and holds only names.
    message
        .rsplit_once(", expected ")
        .map_or_else(Vec::new, |(_, list)| {
            list.split('`').skip(1).step_by(2).collect()
        })
}

/// The names that the enum at this place takes, quoted: asked for with a name that none has.
fn variants_at(document: &Document<'_>, spot: &Spot<'_>) -> Vec<String> {
    let asked = document.with(spot.span.clone(), "\"?\"");
    match toml::from_str::<Scenario>(&asked) {
        Err(error) if error.message().starts_with("unknown variant `?`") => {
            let names = valid_words(error.message());
            names.iter().map(|name| format!("\"{name}\"")).collect()
        }
        _ => Vec::new(),
    }
}

fn quoted_after<'m>(message: &'m str, prefix: &str) -> Option<&'m str> {
    message.strip_prefix(prefix)?.strip_suffix('`')
}

fn unknown_key(place: Place, path: &[String], valid: &[&str]) -> ScenarioError {
    let (key, table) = path
        .split_last()
        .map_or(("", path), |(key, table)| (key.as_str(), table));
    let mut hint = nearest::hint(key, valid, "keys here");
    if nearest::close(key, valid).is_none() {
        let homes = homes_of(key);
        if !homes.is_empty() {
            hint = format!("it is a key of {}; {hint}", homes.join(", "));
        }
    }
    ScenarioError::UnknownKey {
        place,
        key: echo(key),
        table: within(table),
        hint,
    }
}

/// The tables that have this key.
fn homes_of(key: &str) -> Vec<&'static str> {
    let tables: [(&'static str, Vec<String>); 9] = [
        (
            "the top level, above the first [table]",
            keys_of::<Scenario>(),
        ),
        ("[workload.append-log]", keys_of::<AppendLog>()),
        ("[stacks.NAME]", keys_of::<StackSpec>()),
        ("[drives.NAME]", keys_of::<DriveSpec>()),
        ("[drives.NAME.service]", keys_of::<ServiceTimes>()),
        ("[matrix]", keys_of::<Matrix>()),
        ("[[cells]]", keys_of::<CellSpec>()),
        ("[contract]", keys_of::<ContractSpec>()),
        ("[budget]", keys_of::<Budget>()),
    ];
    tables
        .into_iter()
        .filter(|(_, keys)| keys.iter().any(|known| known == key))
        .map(|(table, _)| table)
        .collect()
}

/// The keys that a type takes, in serde's own words: asked for with a key that none has.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    match toml::from_str::<T>("\"?\" = 0") {
        Ok(_) => Vec::new(),
        Err(error) => valid_words(error.message())
            .into_iter()
            .map(str::to_owned)
            .collect(),
    }
}

fn value_hint(value: &str, valid: &[&str]) -> String {
    nearest::hint(value, valid, "values")
}

fn missing_remedy(key: &str) -> String {
    let add = match key {
        "schema" => "`schema = 1`",
        "name" => "`name = \"...\"`",
        "workload" => "a table `[workload.append-log]`",
        "records_per_writer" => "`records_per_writer = 10`, or another number",
        "stacks" => "a table `[stacks.NAME]`",
        "drives" => "a table `[drives.NAME]`",
        "filesystem" => "`filesystem = \"ext4\"` or `\"none\"`",
        "cache" => "`cache = \"volatile\"`, `\"protected\"` or `\"none\"`",
        "stack" => "`stack = \"NAME\"`, the name of a stack",
        "drive" => "`drive = \"NAME\"`, the name of a drive",
        _ => return String::new(),
    };
    format!("; add {add}")
}

/// An enum that is a table holds exactly one key.
fn one_of(place: Place, spot: &Spot<'_>) -> ScenarioError {
    let count = spot.value.as_table().map_or(0, |table| table.len());
    let is_workload = spot.path == ["workload"];
    ScenarioError::WrongType {
        place,
        key: dotted(&spot.path),
        found: format!("a table of {count} keys"),
        expected: if is_workload {
            "a table of exactly one workload, `[workload.append-log]`".to_owned()
        } else {
            "a name, or a table of exactly one key; separate several by commas in the array"
                .to_owned()
        },
    }
}

/// An enum value given by name alone that has keys of its own.
fn needs_table(place: Place, spot: &Spot<'_>) -> ScenarioError {
    let name = echo(spot.value.as_str().unwrap_or_default());
    let spelled = if spot.path == ["workload"] {
        format!("write a table `[workload.{name}]`")
    } else {
        format!("write `{{ {name} = {{ ... }} }}`")
    };
    ScenarioError::Meaning {
        place,
        key: dotted(&spot.path),
        reason: format!("`{name}` has keys of its own; {spelled}"),
    }
}

fn describe(document: &Document<'_>, spot: &Spot<'_>) -> String {
    match spot.value {
        DeValue::String(text) => format!("the text \"{}\"", echo(text)),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
            echo(document.slice(spot.span.clone()))
        }
        DeValue::Datetime(_) => format!("the date {}", echo(document.slice(spot.span.clone()))),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn expectation(expected: &str, spot: &Spot<'_>) -> String {
    let key = spot.path.last().map_or("", String::as_str);
    let unit = match key.rsplit_once('_') {
        Some((_, "us")) => " of microseconds",
        Some((_, "ms")) => " of milliseconds",
        _ => "",
    };
    let integer = |most: u64| {
        let number = format!("an integer{unit} from 0 to {most}");
        match spot.value {
            DeValue::String(_) if unit.is_empty() => format!("{number}, without quotes"),
            DeValue::String(_) => format!("{number}, without quotes; the unit is in the key"),
            _ => number,
        }
    };
    match expected {
        "u32" if key == "schema" => "1, without quotes".to_owned(),
        "u32" => integer(u32::MAX.into()),
        "u64" => integer(u64::MAX),
        "a string" => "a text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" if spot.path == ["cells"] => "an array of tables, `[[cells]]`".to_owned(),
        "a sequence" => "an array, `[...]`".to_owned(),
        "a map" => "a table".to_owned(),
        struct_name if struct_name.starts_with("struct ") => "a table".to_owned(),
        other => sentence(other),
    }
}

/// Adds the size that was probably meant to a message about a size.
fn with_size_hint(message: &str, value: &DeValue<'_>) -> String {
    let reason = sentence(message);
    let Some(text) = value.as_str() else {
        return reason;
    };
    let Some((_, form)) = message.rsplit_once(" is not a size; ") else {
        return reason;
    };
    let shown = echo(text);
    // The form that is asked for ends with an example.
    match meant_size(text) {
        Some(Ok(meant)) => format!("`{shown}` is not a size; did you mean \"{meant}\"?"),
        Some(Err(TooLarge)) => {
            format!("`{shown}` does not fit in 64 bits of bytes, so it is no size")
        }
        None if text.trim_start().starts_with('-') => {
            format!("a size cannot be negative (`{shown}`); {form}")
        }
        None => format!("`{shown}` is not a size; {form}"),
    }
}

/// A number with a unit whose product no size holds.
struct TooLarge;

/// `64 MB`, `64M`, `64 mib` -> `64 MiB`.
fn meant_size(text: &str) -> Option<Result<String, TooLarge>> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return None;
    }
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        _ => return None,
    };
    let meant = format!("{number} {unit}");
    Some(match meant.parse::<plugpull_model::units::Size>() {
        Ok(_) => Ok(meant),
        Err(_) => Err(TooLarge),
    })
}

/// What the planner says of a scenario that was read.
pub(super) fn plan_error(
    document: &Document<'_>,
    file: &str,
    scenario: &Scenario,
    error: &PlanError,
) -> ScenarioError {
    let culprit = culprit(document, scenario, &error.path);
    let line = culprit
        .as_ref()
        .map(|culprit| document.line(culprit.offset))
        .unwrap_or_else(|| document.line_of_path(&error.path));
    let mut reason = sentence(&error.reason);
    if let Some(advice) = culprit.and_then(|culprit| culprit.advice) {
        reason.push_str("; ");
        reason.push_str(&advice);
    }
    ScenarioError::Meaning {
        place: Place {
            file: file.to_owned(),
            line,
        },
        key: sentence(&error.path),
        reason,
    }
}

/// The very element that an error about `matrix` or `cells` is about.
struct Culprit {
    offset: usize,
    /// What to do about it.
    advice: Option<String>,
}

/// The planner's path ends at `matrix`, `matrix.stacks`, `matrix.drives` or `cells`: an array has
/// no dotted path to its elements. Its checks are simple, so the first element that fails them is
/// found again, in the planner's order.
fn culprit(document: &Document<'_>, scenario: &Scenario, path: &str) -> Option<Culprit> {
    let stacks: Vec<&str> = scenario.stacks.keys().map(String::as_str).collect();
    let drives: Vec<&str> = scenario.drives.keys().map(String::as_str).collect();
    let name = |value: &Spanned<DeValue<'_>>, known: &[&str]| {
        let name = value.get_ref().as_str()?;
        (!known.contains(&name)).then(|| Culprit {
            offset: value.span().start,
            advice: nearest::close(name, known).map(|meant| format!("did you mean `{meant}`?")),
        })
    };
    let elements = |key: &str| {
        document
            .value(&["matrix", key])
            .and_then(|value| value.get_ref().as_array())
            .into_iter()
            .flatten()
    };
    match path {
        "matrix.stacks" => elements("stacks").find_map(|value| name(value, &stacks)),
        "matrix.drives" => elements("drives").find_map(|value| name(value, &drives)),
        "matrix" => ["stacks", "drives"].into_iter().find_map(|key| {
            let mut seen = BTreeSet::new();
            elements(key)
                .find(|value| !seen.insert(value.get_ref().as_str()))
                .map(|value| Culprit {
                    offset: value.span().start,
                    advice: Some("remove one".to_owned()),
                })
        }),
        "cells" => {
            let cells = document.value(&["cells"])?.get_ref().as_array()?;
            let keys = |cell: &Spanned<DeValue<'_>>| {
                let table = cell.get_ref().as_table()?;
                let text = |key| {
                    let (_, value) = locate::entry(table, key)?;
                    Some(value.get_ref().as_str()?.to_owned())
                };
                Some((text("stack")?, text("drive")?))
            };
            let mut seen = BTreeSet::new();
            let twice = cells
                .iter()
                .find(|cell| keys(cell).is_some_and(|names| !seen.insert(names)))
                .map(|cell| Culprit {
                    offset: cell.span().start,
                    advice: Some("remove one".to_owned()),
                });
            twice.or_else(|| {
                cells.iter().find_map(|cell| {
                    let table = cell.get_ref().as_table()?;
                    let (_, stack) = locate::entry(table, "stack")?;
                    let (_, drive) = locate::entry(table, "drive")?;
                    name(stack, &stacks).or_else(|| name(drive, &drives))
                })
            })
        }
        _ => None,
    }
}
