//! A request gets 409 while another one works on its address, and none of them keeps an address
//! forever.

#[test]
fn an_address_is_held_by_one_request_and_not_forever() {
    let printed = crate::printed_by("account_cleanup", &[]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines,
        [
            " Ada@Example.com  meanwhile, the same address   409 Conflict: a clean-up of this address is in progress",
            "bob@example.com   meanwhile, another one        200 OK",
            "ada@example.com   the first letter is slow      200 OK",
            "ada@example.com   afterwards                    200 OK",
            "eve@example.com   a letter that never leaves    504 Gateway Timeout: the clean-up took too long and was given up",
            "eve@example.com   afterwards                    200 OK",
        ],
        "{printed}"
    );
}
