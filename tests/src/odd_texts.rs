//! Texts that would end a comment or begin a statement, and an assertion that none did.

use diesel_async::AsyncPgConnection;

/// Pseudo-random texts of everything that could end a comment or begin a statement.
pub struct Texts(pub u64);

const PIECES: [&str; 30] = [
    "*/",
    "/*",
    "*",
    "/",
    "**",
    "//",
    "--",
    "\0",
    "'",
    "\"",
    "\\",
    ";",
    ":",
    "\n",
    "\r\n",
    "\t",
    "\u{7f}",
    "😀",
    "é",
    "ÿ",
    "€",
    "\u{2028}",
    "\u{202e}",
    "$$",
    "$1",
    "E'\\'",
    "room:<room>",
    " ",
    "*/;INSERT INTO booking VALUES (1, 'smuggled');/*",
    "*/COMMIT;DELETE FROM booking;--",
];

impl Texts {
    fn number(&mut self, below: usize) -> usize {
        // xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }

    /// The next text.
    pub fn text(&mut self) -> String {
        // Some are longer than the part that is shown.
        let pieces = match self.number(20) {
            0 => 200,
            _ => self.number(9),
        };
        (0..pieces)
            .map(|_| PIECES[self.number(PIECES.len())])
            .collect()
    }
}

/// No row was added, and the existing one is unchanged.
pub async fn assert_nothing_was_smuggled(conn: &mut AsyncPgConnection) {
    use diesel_async::RunQueryDsl;
    let rows =
        diesel::dsl::sql::<diesel::sql_types::Text>("SELECT string_agg(guest, ',') FROM booking");
    assert_eq!(rows.get_result::<String>(conn).await.unwrap(), "canary");
}
