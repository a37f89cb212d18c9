-- Reticent ledger, schema version 3. One file for SQLite and PostgreSQL: {id} is a whole-number primary key,
-- {blob} a byte string, {keyed} stores a table in the order of its primary key where that can be asked for.
-- Amounts are whole units of 1e-12 below 2^62. Sums are decimal texts: they outgrow 64 bits.
-- `seal` is a CRC-32 over a row's other fields, against torn pages; against people there is the log.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    setting TEXT NOT NULL
) {keyed};

-- One row. `frontier` holds the perfect subtrees at the right edge of the log, largest first.
CREATE TABLE head (
    id {id} CHECK (id = 1),
    size BIGINT NOT NULL CHECK (size >= 0),
    accounts BIGINT NOT NULL,
    keys BIGINT NOT NULL,
    measurements BIGINT NOT NULL,
    frontier {blob} NOT NULL,
    seal BIGINT NOT NULL
);

CREATE TABLE account (
    id {id},
    name TEXT NOT NULL UNIQUE,
    unit TEXT NOT NULL,
    neighbours TEXT NOT NULL,
    subject TEXT NOT NULL,
    cap BIGINT NOT NULL CHECK (cap > 0 AND cap < 4611686018427387904),
    minimum BIGINT NOT NULL CHECK (minimum > 0 AND minimum <= cap),
    spent BIGINT NOT NULL CHECK (spent >= 0 AND spent <= cap),
    nonce {blob} NOT NULL,
    seal BIGINT NOT NULL
);

-- What was ever bought under a key: `requested` is paid for, `information` is recorded, `waiting` lists the
-- measurements in between as number:information, comma separated; with a minus before the information of
-- those that a recovery closed.
CREATE TABLE bought (
    id {id},
    account BIGINT NOT NULL REFERENCES account (id),
    name TEXT NOT NULL,
    requested BIGINT NOT NULL CHECK (requested > 0),
    information BIGINT NOT NULL CHECK (information >= 0 AND information <= requested),
    sums TEXT NOT NULL,
    waiting TEXT NOT NULL,
    nonce {blob} NOT NULL,
    seal BIGINT NOT NULL,
    UNIQUE (account, name)
);

-- `recorded` is NULL until the measurement is fulfilled: then the values as decimal texts, comma separated.
CREATE TABLE measurement (
    number {id},
    bought BIGINT NOT NULL REFERENCES bought (id),
    information BIGINT NOT NULL CHECK (information > 0),
    recorded TEXT,
    nonce {blob}
);

-- The text of the question that a key is named after: the key ends with its SHA-256. Written with the first charge
-- under the key, and `numbers` with each record: those of its recorded measurements, comma separated. Keys of releases
-- before version 3, of payments, and of what is no question have none.
CREATE TABLE question (
    bought {id} REFERENCES bought (id),
    wording TEXT NOT NULL,
    numbers TEXT NOT NULL
);

-- The answers to calls with an idempotency key; `verb` is 'request' or 'pay', `entry` commits to the row.
CREATE TABLE answered (
    account BIGINT NOT NULL REFERENCES account (id),
    idempotency TEXT NOT NULL,
    verb TEXT NOT NULL,
    name TEXT NOT NULL,
    asked BIGINT NOT NULL,
    information BIGINT NOT NULL,
    charged BIGINT NOT NULL,
    entry BIGINT NOT NULL,
    nonce {blob} NOT NULL,
    PRIMARY KEY (account, idempotency)
) {keyed};

-- The log: canonical texts, hashed as in RFC 9162.
CREATE TABLE entry (
    number {id},
    leaf TEXT NOT NULL
);

-- Perfect subtrees of 2^level entries from level 8 on; smaller ones are recomputed from entries.
CREATE TABLE node (
    level BIGINT NOT NULL,
    number BIGINT NOT NULL,
    hash {blob} NOT NULL,
    PRIMARY KEY (level, number)
) {keyed};
