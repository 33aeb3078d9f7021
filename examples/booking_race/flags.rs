//! The flags of the booking race, and their limits.

pub(crate) const HELP: &str = "\
Clients fight for slots: first without a lock, then with one.

Usage: cargo run --example booking_race -- [FLAGS]

      --clients N   how many book at the same time (default 200)
      --slots N     how many slots there are (default 20)
      --pool N      how many connections they share (default 20)
      --json        print one JSON object
  -h, --help        print this

Exit status: 0 when double bookings happen without the lock and none with it, else 1; 2 for a wrong flag.
";

pub(crate) struct Flags {
    pub(crate) clients: usize,
    pub(crate) slots: usize,
    pub(crate) pool: usize,
    pub(crate) json: bool,
}

impl Flags {
    /// `None` means help.
    pub(crate) fn parse() -> Result<Option<Self>, lexopt::Error> {
        use lexopt::prelude::*;
        let mut flags = Self {
            clients: 200,
            slots: 20,
            pool: 20,
            json: false,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("clients") => flags.clients = number(&mut parser, "clients", 2..=10_000)?,
                Long("slots") => flags.slots = number(&mut parser, "slots", 1..=10_000)?,
                Long("pool") => flags.pool = number(&mut parser, "pool", 2..=250)?,
                Long("json") => flags.json = true,
                Short('h') | Long("help") => return Ok(None),
                _ => return Err(arg.unexpected()),
            }
        }
        Ok(Some(flags))
    }
}

fn number(
    parser: &mut lexopt::Parser,
    flag: &str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, lexopt::Error> {
    let value = parser.value()?;
    let number = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = range.into_inner();
        format!(
            "--{flag} {}: expected a number from {least} to {most}",
            value.display()
        )
        .into()
    })
}
