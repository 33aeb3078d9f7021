//! The results of the two runs, and the check that they prove what they should.

use std::fmt;
use std::process::ExitCode;

use crate::flags::Flags;

/// The result of one run.
pub(crate) struct Run {
    pub(crate) bookings: i64,
    pub(crate) double_bookings: i64,
    pub(crate) waits: i64,
    pub(crate) seconds: f64,
}

/// Prints both runs, and returns whether they prove what they should.
pub(crate) fn report(flags: &Flags, without: &Run, with: &Run) -> ExitCode {
    if flags.json {
        let (without, with) = (without.json(), with.json());
        println!("{{\"without\": {without}, \"with\": {with}}}");
    } else {
        println!(
            "{} clients, {} slots, {} connections\n",
            flags.clients, flags.slots, flags.pool
        );
        println!("                  bookings  double bookings  waits  seconds");
        println!("without the lock  {without}");
        println!("with the lock     {with}\n");
        println!("waits: calls seen waiting for their lock in pg_locks, which is read every 5 ms");
    }
    if without.double_bookings == 0 {
        eprintln!("no double booking without the lock, so this proves nothing: try more --clients");
    }
    if with.double_bookings > 0 {
        eprintln!("double bookings in spite of the lock: this is a bug");
    }
    let proven = without.double_bookings > 0 && with.double_bookings == 0;
    if proven {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A line of the table.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bookings,
            double_bookings,
            waits,
            seconds,
        } = self;
        write!(
            f,
            "{bookings:>8}  {double_bookings:>15}  {waits:>5}  {seconds:>7.2}"
        )
    }
}

impl Run {
    fn json(&self) -> String {
        let Self {
            bookings,
            double_bookings,
            waits,
            seconds,
        } = self;
        format!(
            "{{\"bookings\": {bookings}, \"double_bookings\": {double_bookings}, \
             \"waits\": {waits}, \"seconds\": {seconds:.3}}}"
        )
    }
}
