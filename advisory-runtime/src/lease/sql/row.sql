SELECT key_hash, token, pattern, key, holder, data, is_kept, {acquired_micros}, {expires_micros}, {left} FROM {table}
