//! Leases are listed as leases, separate from advisory locks, and a change from one to the other is
//! reported.

use std::slice::from_ref;

use advisory_pattern::Record;
use serde_json::Value;

use crate::programs::{Said, advisory, assert_has, assert_has_all, file, program_of, site};

/// A lease with a pattern, or a number, as its key.
fn lease(function: &str, line: u32, written: &str, key: &str) -> Record {
    Record {
        scope: "lease".to_owned(),
        version: "2.0.0".to_owned(),
        ..site("billing", function, line, &[written], &[key])
    }
}

const INVOICE: (&str, &str) = ("invoice:<month>", "pattern invoice:<month: uint>");

fn send() -> Record {
    Record {
        component: Some("Invoices".to_owned()),
        purpose: Some("One mail a month".to_owned()),
        wait: Some("never".to_owned()),
        ttl: Some("30s".to_owned()),
        renew: Some("10s".to_owned()),
        keep: Some("24h".to_owned()),
        ..lease("send", 7, INVOICE.0, INVOICE.1)
    }
}

fn sites() -> Vec<Record> {
    let mut book = lease("book", 90, INVOICE.0, INVOICE.1);
    "xact".clone_into(&mut book.scope);
    let mut sweep = lease("sweep", 30, "42", "number 42");
    sweep.name = Some("sweep".to_owned());
    vec![
        send(),
        lease("report", 20, "nightly", "pattern nightly"),
        sweep,
        lease("shard", 40, "(7, shard)", "number (7,?)"),
        lease("import", 50, "job.lock()", "?"),
        book,
    ]
}

fn dump(name: &str, format: &str, sites: &[Record]) -> String {
    let program = program_of(name, sites);
    let said = advisory(&["dump", "--format", format, "--artifact", &program]).exits(0);
    said.out
}

#[test]
fn the_table_and_the_document_say_what_a_lease_is() {
    let table = dump("leases-table.rmeta", "text", &sites());
    assert_eq!(table, include_str!("leases.txt"));
    let document = dump("leases-document.rmeta", "markdown", &sites());
    assert_eq!(document, include_str!("leases.md"));
}

#[test]
fn json_gives_a_leases_times_and_neither_number_nor_derivation() {
    let value: Value =
        serde_json::from_str(&dump("leases-json.rmeta", "json", &sites())).expect("it is JSON");
    let site = |at: usize| &value["sites"][at];
    let send = site(0);
    assert_eq!(send["scope"], "lease");
    assert_eq!(send["key_space"], "lease");
    assert_eq!(send["derivation"], Value::Null);
    assert_eq!(
        (&send["ttl"], &send["renew"], &send["keep"]),
        (&"30s".into(), &"10s".into(), &"24h".into())
    );
    let report = site(1);
    assert_eq!(report["pattern"], "nightly");
    assert_eq!(report["number"], Value::Null);
    assert_eq!(report["ttl"], Value::Null);
    assert_eq!(site(2)["number"], 42);
    assert_eq!(site(4)["keys"][0]["key_space"], "lease");
    let book = site(5);
    assert_eq!(book["key_space"], "bigint");
    assert_eq!(book["derivation"], "sha256");
}

#[test]
fn a_registry_of_leases_is_up_to_date_in_either_form() {
    for format in ["json", "markdown"] {
        let committed = dump("leases-registry.rmeta", format, &sites());
        let committed = file(&format!("leases-registry.{format}"), committed);
        let program = program_of(&format!("leases-now.{format}.rmeta"), &sites());
        let words = ["check", "--artifact", &program, "--registry", &committed];
        assert_eq!(advisory(&words).code, Some(0), "{format}");
        let mut shorter = sites();
        shorter[0].keep = Some("12h".to_owned());
        let program = program_of(&format!("leases-shorter.{format}.rmeta"), &shorter);
        let words = ["check", "--artifact", &program, "--registry", &committed];
        assert_eq!(advisory(&words).code, Some(1), "{format}");
    }
}

fn check(name: &str, sites: &[Record]) -> Said {
    advisory(&["check", "--artifact", &program_of(name, sites)])
}

#[test]
fn leases_collide_with_leases_and_not_with_advisory_locks() {
    check("leases-apart.rmeta", &sites()).exits(0);
    let mut other = sites();
    let (written, key) = ("invoice:<id>", "pattern invoice:<id: text>");
    other.push(lease("resend", 99, written, key));
    // A different derivation does not make a different lease.
    "md5".clone_into(&mut other[6].derivation);
    let said = check("leases-collide.rmeta", &other).exits(1);
    assert_has_all(
        &said.out,
        &[
            "error: lease keys can collide: `invoice:<id>` and `invoice:<month>`",
            "both can render \"invoice:",
            "1 finding;",
        ],
    );
}

#[test]
fn one_name_for_a_lease_and_an_advisory_lock_is_a_finding() {
    let mut sites = sites();
    for site in [0, 5] {
        sites[site].name = Some("invoice".to_owned());
    }
    let said = check("leases-name.rmeta", &sites).exits(1);
    assert_has_all(
        &said.out,
        &[
            "advisory lock `invoice` is two locks",
            "`invoice` names a lease and an advisory lock",
            "write `#[advisory_lease]` at both or at neither",
        ],
    );
}

/// The findings if these were the sites before.
fn against(name: &str, now: &[Record], before: &[Record]) -> Said {
    let before = dump(&format!("{name}-before.rmeta"), "json", before);
    let before = file(&format!("{name}-before.json"), before);
    let now = program_of(&format!("{name}-now.rmeta"), now);
    advisory(&["check", "--artifact", &now, "--against", &before])
}

fn moved(site: &Record, scope: &str) -> Record {
    let scope = scope.to_owned();
    Record {
        scope,
        ..site.clone()
    }
}

#[test]
fn changing_a_lock_to_a_lease_or_back_changes_its_key() {
    against("leases-same", &sites(), &sites()).exits(0);
    // Even if the key is only known at run time.
    for (at, key) in [
        (0, "invoice:<month>"),
        (2, "42"),
        (3, "(7, shard)"),
        (4, "job.lock()"),
    ] {
        let lease = &sites()[at];
        let lock = moved(lease, "session");
        let name = format!("leases-moved-{at}");
        let said = against(&name, from_ref(lease), from_ref(&lock)).exits(1);
        assert_has(&said.out, &format!(" to `{key}` as a lease\n"));
        let said = against(&name, from_ref(&lock), from_ref(lease)).exits(1);
        assert_has(
            &said.out,
            &format!(" has changed from `{key}` as a lease to "),
        );
    }
    // Changes between the scopes of advisory locks change no key.
    let (xact, session) = (moved(&send(), "xact"), moved(&send(), "session"));
    against("leases-none", &[xact], &[session]).exits(0);
}

#[test]
fn a_lease_has_no_derivation_and_one_text_for_every_spelling() {
    let mut md5 = send();
    md5.derivation = "md5".to_owned();
    against("leases-derivation", &[md5], &[send()]).exits(0);
    let number = lease("sweep", 1, "42", "number 42");
    let text = lease("sweep", 1, "42", "pattern 42");
    against("leases-text", &[text], &[number]).exits(0);
    let other = lease("send", 1, "bill:<month>", "pattern bill:<month: uint>");
    against("leases-other", &[other], &[send()]).exits(1);
}

#[test]
fn a_key_that_becomes_a_declared_lock_is_the_same_key() {
    let named = |site: Record| Record {
        name: Some("invoice".to_owned()),
        ..site
    };
    let declared = Record {
        kind: "struct".to_owned(),
        function: "InvoiceLock".to_owned(),
        ..named(moved(&send(), "none"))
    };
    // For advisory locks the derivation matters.
    let md5 = Record {
        derivation: "md5".to_owned(),
        ..declared.clone()
    };
    against("leases-declared", &[md5], from_ref(&declared)).exits(1);
    for scope in ["lease", "xact"] {
        let site = named(moved(&send(), scope));
        let (site, declared) = ([site], [declared.clone()]);
        let name = format!("leases-declared-{scope}");
        assert_eq!(against(&name, &declared, &site).code, Some(0), "{scope}");
        assert_eq!(against(&name, &site, &declared).code, Some(0), "{scope}");
    }
}
