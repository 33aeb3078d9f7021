//! The harness itself: separate databases, waiting for states, and nothing left behind.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use advisory_tests::{Database, Guardian, Pgpool, left_out, owns_server};
use diesel_async::SimpleAsyncConnection;
use tokio::time::{interval, timeout};

/// The time limit for a state that must not change.
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
#[should_panic(expected = "has ExclusiveLock")]
async fn a_leaked_lock_is_named() {
    let db = Database::create().await.with_timeout(SHORT);
    db.run("SELECT pg_advisory_lock(7)").await;
    db.until_no_locks().await;
}

#[tokio::test]
#[should_panic(expected = "idle in transaction: BEGIN")]
async fn a_transaction_left_open_is_named() {
    let db = Database::create().await.with_timeout(SHORT);
    let mut conn = db.connect().await;
    conn.batch_execute("BEGIN").await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
#[should_panic(expected = "not yet")]
async fn a_state_that_does_not_come_is_no_success() {
    let db = Database::create().await.with_timeout(SHORT);
    db.until_some("a table", "SELECT FROM pg_tables WHERE tablename = 'slots'")
        .await;
}

#[tokio::test]
async fn a_dropped_database_is_gone_from_the_server() {
    let (gone, left) = tokio::join!(Database::create(), Database::create());
    let oid = gone
        .count("SELECT oid FROM pg_database WHERE datname = current_database()")
        .await;
    let _still_connected = gone.connect().await;
    let count = format!("SELECT count(*) FROM pg_database WHERE oid = {oid}");
    assert_eq!(left.count(&count).await, 1);
    drop(gone);
    assert_eq!(left.count(&count).await, 0);
}

#[tokio::test]
async fn a_killed_process_leaves_no_server() {
    assert_vanishes(|child| signal("-KILL", &child.id().to_string())).await;
}

#[tokio::test]
async fn an_interrupted_process_leaves_no_server() {
    // To the whole process group, like Ctrl-C in a terminal.
    assert_vanishes(|child| signal("-INT", &format!("-{}", child.id()))).await;
}

#[tokio::test]
async fn a_panicked_process_leaves_no_server() {
    assert_vanishes(|child| drop(child.stdin.take())).await;
}

#[test]
fn a_guardian_that_is_dropped_leaves_the_process_alone() {
    let mut guarded = Command::new("sleep")
        .arg("600")
        .spawn()
        .expect("a POSIX system");
    drop(Guardian::of(&guarded).expect("a shell"));
    let state = guarded.try_wait().expect("its state");
    guarded.kill().expect("it runs");
    guarded.wait().expect("it ends");
    assert_eq!(state, None);
}

/// The check at the end of CI.
#[test]
fn a_process_left_by_a_run_is_found() {
    if !Path::new("/proc/self/fd").exists() {
        return;
    }
    let marker = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("left-behind");
    fs::write(&marker, "").expect("a scratch file");
    let search = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/left-behind");
        let output = Command::new(script).arg(&marker).output().expect("bash");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(search(), "");
    // Like an orphan whose parent was a shell.
    let line = "sleep 600 <\"$0\" >/dev/null 2>&1 & echo $!";
    let started = Command::new("sh")
        .args(["-c", line])
        .arg(&marker)
        .output()
        .expect("a shell");
    let pid = String::from_utf8(started.stdout).expect("text");
    let found = search();
    signal("-KILL", pid.trim());
    assert_eq!(found.trim(), format!("{} sleep 600", pid.trim()));
}

/// Not a test: the process that the three tests above end.
#[tokio::test]
#[ignore = "started by the tests of a process's end"]
async fn child() {
    if env::var_os(CHILD).is_some() {
        let db = Database::create().await;
        // A stopped process cannot react by itself.
        let mut guarded = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = guarded.id().to_string();
        signal("-STOP", &pid);
        // Never dropped: only the end of this process ends the server.
        std::mem::forget(Guardian::of(&guarded).unwrap());
        eprintln!("guarded {pid}");
        eprintln!("{}", db.url());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        assert!(guarded.try_wait().unwrap().is_some(), "as the parent asked");
    }
}

const CHILD: &str = "ADVISORY_TEST_CHILD";

/// Ends a process that has started a server, and waits until the server and its folder are gone.
async fn assert_vanishes(end: impl FnOnce(&mut Child)) {
    if !owns_server() {
        return;
    }
    let mut child = Command::new(env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut said = BufReader::new(child.stderr.take().expect("stderr is piped"))
        .lines()
        .map_while(Result::ok);
    let guarded = said
        .find_map(|line| line.strip_prefix("guarded ").map(str::to_owned))
        .expect("the child guards a process");
    assert!(is_running(&guarded));
    let url = said
        .find(|line| line.starts_with("postgres://"))
        .expect("the child has a database");
    let folder = folder_of(&url);
    let server = fs::read_to_string(folder.join("data/postmaster.pid")).expect("a running server");
    let server = server.lines().next().expect("its process id");
    assert!(is_running(server));
    end(&mut child);
    child.wait().expect("the child ends");
    are_gone(&folder, &[server, &guarded]).await;
}

/// The folder of a socket.
fn folder_of(url: &str) -> PathBuf {
    let host = url.split(['@', '/']).nth(3).expect("a host");
    PathBuf::from(host.replace("%2F", "/").replace("%25", "%"))
}

async fn are_gone(folder: &Path, processes: &[&str]) {
    let gone = async {
        let mut poll = interval(Duration::from_millis(20));
        while folder.exists() || processes.iter().any(|pid| is_running(pid)) {
            poll.tick().await;
        }
    };
    timeout(Duration::from_secs(60), gone)
        .await
        .expect("folder and processes are gone");
}

/// One did, in the handler of the signal that ends it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_pgpool_with_a_process_that_hangs_is_ended() {
    let db = Database::create().await;
    let pgpool = match Pgpool::start(&db).await {
        Ok(pgpool) => pgpool,
        Err(why) => return left_out("pgpool", why),
    };
    let folder = folder_of(&pgpool.url(&db));
    let first = fs::read_to_string(folder.join("pid")).expect("its process id");
    let first = first.trim_matches(|other: char| !other.is_ascii_digit());
    let others = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
    let hangs = others.split_whitespace().next().expect("its processes");
    signal("-STOP", hangs);
    drop(pgpool);
    are_gone(&folder, &[first, hangs]).await;
}

fn signal(signal: &str, target: &str) {
    assert!(
        Command::new("kill")
            .args([signal, "--", target])
            .status()
            .expect("a POSIX system")
            .success()
    );
}

/// A zombie process is not running.
fn is_running(pid: &str) -> bool {
    let output = Command::new("ps")
        .args(["-o", "stat=", "-p", pid])
        .output()
        .expect("a POSIX system");
    output.stdout.first().is_some_and(|state| *state != b'Z')
}
