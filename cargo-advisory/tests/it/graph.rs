//! The order of locks is drawn, and contradicting orders are reported.

use advisory_pattern::order::{Edge, End};

use crate::programs::{advisory, assert_has, assert_has_all, assert_lacks, file, run, scratch};
use crate::records::end;

fn gated_line(gates: &[&str], held: End, asked: End) -> String {
    let gates = gates.iter().map(ToString::to_string).collect();
    let edge = Edge { held, asked, gates };
    edge.encode()
}

fn line(held: End, asked: End) -> String {
    gated_line(&[], held, asked)
}

#[test]
fn one_order_is_drawn_once_and_causes_no_finding() {
    let line = line(
        end("account:<from>", "src/a.rs:3"),
        End {
            is_lease: true,
            is_shared: true,
            ..end("a \"report\"", "src/b.rs:4")
        },
    );
    let from = file("order-one", format!("{line}{line}"));
    let said = advisory(&["graph", "--from", &from]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    let drawn = "digraph locks {\n  rankdir=LR;\n  node [shape=box];\n  \
         n1 [label=\"a \\\"report\\\"\", shape=ellipse];\n  n0 [label=\"account:<from>\"];\n  \
         n0 -> n1 [label=\"src/a.rs:3 → src/b.rs:4 (shared)\"];\n}\n";
    assert!(said.out.ends_with(drawn), "{}", said.out);
}

#[test]
fn a_record_can_not_steer_the_terminal() {
    let (one, other) = ("a\u{202e}", "b\u{2066}");
    let edges = line(end(one, ""), end(other, "")) + &line(end(other, ""), end(one, ""));
    let from = file("order-hostile", edges);
    let said = advisory(&["graph", "--from", &from]).exits(1);
    for steers in ["\u{202e}", "\u{2066}"] {
        assert_lacks(&said.out, steers);
        assert_lacks(&said.err, steers);
    }
}

/// Golden: the text that code hosts draw.
#[test]
fn a_mermaid_graph_has_the_same_boxes_and_arrows() {
    let leased = End {
        is_lease: true,
        is_shared: true,
        ..end("a \"report\"", "`report` (src/b.rs:4)")
    };
    let edges = line(end("account:<from>", "`pay` (src/a.rs:3)"), leased)
        + &line(end("b:<id>", "src/a.rs:9"), end("account:<id>", ""))
        + &line(
            end("account:<id>", "src/c.rs:1"),
            end("b:<id|lower>", "x_y"),
        )
        + &line(end("account:<id>", "src/c.rs:1"), end("b:<id>", ""));
    let from = file("order-mermaid", edges);
    let said = advisory(&["graph", "--from", &from, "--format", "mermaid"]).exits(1);
    let golden = include_str!("graph.mmd");
    assert_eq!(said.out, golden);
}

#[test]
fn contradicting_orders_are_red_and_shown_with_both_places() {
    let one = line(end("a:<id>", "src/a.rs:3"), end("b:<id>", "src/a.rs:9"));
    let other = line(end("b:<b>", "src/b.rs:5"), end("a:<a>", "src/b.rs:7"));
    let more = line(end("a:<id>", "src/a.rs:3"), end("c", "src/c.rs:1"));
    let (first, second) = (
        file("order-first", one + &more),
        file("order-second", other),
    );
    let to = scratch("order.dot");
    let said = advisory(&["graph", "--from", &first, "--from", &second, "-o", &to]).exits(1);
    assert_has_all(
        &said.err,
        &[
            "`a:<id>` → `b:<id>`",
            "held since src/b.rs:5, asked for at src/b.rs:7",
            "help: take them in one call",
        ],
    );
    let drawn = std::fs::read_to_string(to).unwrap();
    assert_eq!(drawn.matches(", color=red").count(), 2, "{drawn}");
    assert_eq!(drawn.matches("->").count(), 3, "{drawn}");
}

#[test]
fn a_lock_held_around_both_orders_rules_the_deadlock_out() {
    let [a, b] = ["a:<id>", "b:<id>"].map(|lock| move || end(lock, "src/a.rs:3"));
    let gated = gated_line(&["import (7)"], a(), b()) + &gated_line(&["import (7)"], b(), a());
    let said = advisory(&["graph", "--from", &file("order-gated", &gated)]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    assert_lacks(&said.out, "red");
    let open = gated + &line(b(), a());
    advisory(&["graph", "--from", &file("order-open", open)]).exits(1);
}

#[test]
fn the_records_go_to_the_given_file() {
    let from = file("order-variable", line(end("a", ""), end("b", "")));
    let said = run(&["graph"], &[("ADVISORY_LOCK_ORDER", &from)]).exits(0);
    assert_has(&said.out, "label=\"a\"");
}

#[test]
fn what_cannot_be_read_is_wrong_use_and_says_what_to_do() {
    let said = run(&["graph"], &[]).exits(2);
    assert_has(&said.err, "ADVISORY_LOCK_ORDER=");
    let said = advisory(&["graph", "--from", &scratch("no-such-order")]).exits(2);
    assert_has(&said.err, "there is no such record");
    let odd = file("order-odd", "1\tlock\n");
    let said = advisory(&["graph", "--from", &odd]).exits(2);
    assert_has(&said.err, "line 1");
}

#[test]
fn a_record_without_nested_locks_is_said_to_have_none() {
    let said = advisory(&["graph", "--from", &file("order-empty", "")]).exits(0);
    assert_has(&said.err, "no lock was asked for");
}
