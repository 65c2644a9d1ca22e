//! The fence of a holder, which grows with every one.

use quorlock_testkit::test;
use serde_json::Value;

use crate::nodes::{Nodes, Record, quorlock};
use crate::process::{Running, outcome};

fn fence(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("no number: {text:?}"))
}

#[test]
fn the_command_of_a_run_has_it_and_every_later_one_a_higher() {
    let home = tempfile::tempdir().unwrap();
    for (count, dialect) in [(3, "strict"), (1, "redlock"), (0, "strict")] {
        let nodes = Nodes::start(count);
        let mut last = 0;
        for _ in 0..3 {
            let mut run = if count > 0 { nodes.quorlock("run") } else { quorlock() };
            if count == 0 {
                run.env("XDG_STATE_HOME", home.path()).arg("run");
            }
            run.args(["--dialect", dialect, "x", "--", "printenv", "QUORLOCK_FENCE"]);
            let run = outcome(&mut run);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
            let fence = fence(&run.stdout);
            assert!(fence > last, "{dialect}: {fence} after {last}");
            last = fence;
        }
    }
}

#[test]
fn it_is_what_the_nodes_and_the_status_say() {
    let nodes = Nodes::start(3);
    let args = ["x", "-c", "echo $QUORLOCK_FENCE; read _; exit 0"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    let fence = fence(&run.line());
    quorlock_testkit::eventually("every node has the lock", || nodes.holding("x") == 3);
    for server in &nodes.0 {
        assert_eq!(Record::on(server, "x").expect("it is held").fence, fence);
    }
    let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!((&status["fence"], &status["nodes"][1]["fence"]), (&fence.into(), &fence.into()));
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn a_run_inside_a_run_has_that_of_its_own_lock() {
    let nodes = Nodes::start(3);
    let script = r#"for name in x y; do "$QUORLOCK" run $name -- printenv QUORLOCK_FENCE; done;
        echo $QUORLOCK_FENCE"#;
    let run = outcome(nodes.quorlock("run").args(["x", "-c", script]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let fences: Vec<_> = run.stdout.lines().map(fence).collect();
    let [same, other, own] = fences[..] else { panic!("{run:?}") };
    assert_eq!(same, own, "it takes part in the lock around it");
    assert!(other > own, "{run:?}");
}

#[test]
fn acquire_prints_it_if_it_is_asked_for() {
    let nodes = Nodes::start(3);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("token");
    let acquire = |name: &str, args: &[&str]| {
        let acquired = outcome(nodes.quorlock("acquire").arg("--json").args(args).arg(name));
        assert_eq!((acquired.code, acquired.stderr.as_str()), (Some(0), ""), "{acquired:?}");
        assert_eq!(acquired.stdout.lines().count(), 1, "{acquired:?}");
        let object: Value = serde_json::from_str(&acquired.stdout).expect("JSON");
        assert_eq!(object["name"], name);
        object
    };
    let printed = acquire("x", &[]);
    let on_node = |name: &str| {
        let mut records = nodes.0.iter().filter_map(|server| Record::on(server, name));
        records.next().expect("it is held")
    };
    let record = on_node("x");
    assert_eq!(printed["token"], record.token);
    assert_eq!(printed["fence"], record.fence);

    let filed = acquire("y", &["--token-file", file.to_str().unwrap()]);
    let record = on_node("y");
    assert!(filed["token"].is_null(), "{filed}");
    assert_eq!(filed["fence"], record.fence);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), record.token);
}
