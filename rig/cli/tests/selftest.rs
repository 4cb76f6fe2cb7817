//! `plugpull selftest` as a user calls it.

use assert_cmd::Command;
use serde_json::Value;

#[test]
fn every_break_of_the_rig_is_caught_and_the_honest_rig_is_not() {
    let output = Command::new(env!("CARGO_BIN_EXE_plugpull"))
        .args(["selftest", "--json"])
        .output()
        .expect("selftest runs");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["honest"]["caught"], true, "{}", json["honest"]);
    let faults = json["faults"].as_array().expect("faults");
    assert!(faults.len() >= 10);
    for fault in faults {
        assert_eq!(fault["caught"], true, "{fault}");
        assert!(!fault["by"].as_str().expect("words").is_empty());
    }
    assert_eq!(output.status.code(), Some(0));
}
