use plugpull_reports::{REPORT_SCHEMA, Report};
use serde_json::Value;

use crate::samples::*;

fn report() -> Value {
    serde_json::from_str(&Report::from_events(&quickstart()).to_json()).expect("JSON")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The golden report has the order of the keys.
fn holds(value: &Value, expected: &[(&str, &[&str])]) {
    let object = value.as_object().expect("an object");
    for (key, kinds) in expected {
        let value = object.get(*key).unwrap_or_else(|| panic!("no {key}"));
        assert!(
            kinds.contains(&kind(value)),
            "{key} is a {}, not {kinds:?}",
            kind(value)
        );
    }
}

#[test]
fn the_report_has_the_promised_keys_and_types() {
    let report = report();
    holds(
        &report,
        &[
            ("schema", &["number"]),
            ("verdict", &["string"]),
            ("reason", &["string", "null"]),
            ("seed", &["number"]),
            ("scenario", &["string"]),
            ("run", &["string"]),
            ("cells", &["array"]),
            ("environment", &["object", "null"]),
            ("earlier_environments", &["array"]),
        ],
    );
    assert_eq!(report["schema"], REPORT_SCHEMA);
    for cell in report["cells"].as_array().expect("cells") {
        holds(
            cell,
            &[
                ("id", &["string"]),
                ("stack", &["string"]),
                ("drive", &["string"]),
                ("cutter", &["string"]),
                ("role", &["string"]),
                ("verdict", &["string"]),
                ("reason", &["string", "null"]),
                ("records", &["object"]),
                ("cut_points", &["number"]),
                ("max_depth", &["number"]),
                ("crash_states", &["object"]),
                ("findings", &["object"]),
                ("latency_ns", &["object"]),
                ("first_finding", &["object", "null"]),
                ("drive_settings", &["object", "null"]),
                ("stack_settings", &["object", "null"]),
                ("workload", &["object", "null"]),
                ("faults", &["array", "null"]),
                ("faults_seed", &["number", "null"]),
            ],
        );
        let number: &[&str] = &["number"];
        holds(
            &cell["records"],
            &[("issued", number), ("acknowledged", number)],
        );
        holds(
            &cell["crash_states"],
            &[
                ("possible", &["string"]),
                ("covered", number),
                ("checked", number),
                ("exhaustive", &["bool"]),
            ],
        );
        holds(
            &cell["latency_ns"],
            &[
                ("p50", number),
                ("p99", number),
                ("p999", number),
                ("max", number),
            ],
        );
        let possible = cell["crash_states"]["possible"].as_str().expect("a string");
        assert!(possible.bytes().all(|b| b.is_ascii_digit()) && !possible.is_empty());
        assert!(
            ["subject", "must-fail", "must-pass"].contains(&cell["role"].as_str().expect("a role"))
        );
    }
}

#[test]
fn the_report_is_the_golden_one() {
    insta::assert_snapshot!(Report::from_events(&quickstart()).to_json());
}

#[test]
fn an_empty_report_is_still_a_report() {
    insta::assert_snapshot!(Report::new().to_json());
}

#[test]
fn a_subjects_verdict_is_the_one_after_the_controls() {
    let report: Value =
        serde_json::from_str(&Report::from_events(&blind()).to_json()).expect("JSON");
    let subject = &report["cells"][0];
    assert_eq!(subject["verdict"], "inconclusive");
    assert_eq!(subject["own_verdict"], "upheld");
    assert!(
        subject["reason"]
            .as_str()
            .expect("a reason")
            .contains("ext4-barrier@lying")
    );
}

#[test]
fn the_first_finding_is_whole() {
    let report = report();
    let cell = &report["cells"][1];
    let expected = serde_json::to_value(lost("ext4-nobarrier@volatile", 1)).expect("JSON");
    assert_eq!(cell["first_finding"], expected);
}

#[test]
fn the_schema_document_names_every_key() {
    let document = include_str!("../../SCHEMA.md");
    let report = report();
    let mut keys: Vec<String> = report
        .as_object()
        .expect("object")
        .keys()
        .cloned()
        .collect();
    for cell in report["cells"].as_array().expect("cells") {
        for (key, value) in cell.as_object().expect("object") {
            keys.push(format!("cells[].{key}"));
            if matches!(
                key.as_str(),
                "records"
                    | "crash_states"
                    | "latency_ns"
                    | "drive_settings"
                    | "stack_settings"
                    | "workload"
            ) {
                for inner in value.as_object().into_iter().flat_map(|o| o.keys()) {
                    keys.push(format!("cells[].{key}.{inner}"));
                }
            }
            if key == "first_finding" && value.is_object() {
                for (inner, value) in value.as_object().expect("object") {
                    keys.push(format!("first_finding.{inner}"));
                    for innermost in value.as_object().into_iter().flat_map(|o| o.keys()) {
                        keys.push(format!("first_finding.{inner}.{innermost}"));
                    }
                }
            }
        }
    }
    keys.sort();
    keys.dedup();
    let missing: Vec<&String> = keys
        .iter()
        .filter(|key| !document.contains(&format!("| `{key}` |")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_plan_of_a_cell_is_in_it_as_the_model_serialises_it() {
    let report = report();
    let id = "ext4-barrier@volatile-512";
    let plan = planned(id);
    let cells = report["cells"].as_array().expect("cells");
    let cell = cells.iter().find(|cell| cell["id"] == id).expect("there");
    let json = |value: serde_json::Result<Value>| value.expect("JSON");
    assert_eq!(
        cell["drive_settings"],
        json(serde_json::to_value(&plan.drive))
    );
    assert_eq!(
        cell["stack_settings"],
        json(serde_json::to_value(&plan.stack))
    );
    assert_eq!(cell["workload"], json(serde_json::to_value(&plan.workload)));
    assert_eq!(
        cell["faults"],
        serde_json::json!(["shorn", {"write-eio": {"from_event": 5, "to_event": 9}}])
    );
    assert_eq!(report["environment"]["kernel"], "6.18.0");
}

#[test]
fn what_was_not_told_is_null_and_not_empty() {
    let report: Value =
        serde_json::from_str(&Report::from_events(&upheld()).to_json()).expect("JSON");
    assert!(report["environment"].is_null());
    for key in ["drive_settings", "stack_settings", "workload", "faults"] {
        assert!(report["cells"][0][key].is_null(), "{key}");
    }
}
