# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Privacy ledger
@license Apache-2.0
@notice Data sets whose privacy budget nobody can quietly exceed, their owners included.
    An analyst requests information about a key; what is not bought yet under that key is charged, or the request
    is refused and nothing happens. The oracle, which alone holds the data, measures with fresh noise and records
    the values, once. Exact sums are kept, so that anybody can redo every estimate.
@dev Information is counted in units of 1e-12 of the data set's unit. No call leaves this contract, no loop is longer
    than the values of one record, and nothing that is recorded is ever changed.
    Amounts are below 2**62 and values fit int64: no sum can pass 2**125, so arithmetic cannot overflow.
"""

# Of this contract: 1 kept the keys of payments among those of questions.
version: public(constant(uint256)) = 2

MAX_UNITS: constant(uint64) = 2**62 - 1
MOST_VALUES: constant(uint256) = 512


struct DataSet:
    owner: address
    candidate: address  # to whom the owner offers the data set
    oracle: address  # alone records values
    paused: bool
    cap: uint64
    minimum: uint64  # the least that a fresh measurement is charged, for each of its values
    spent: uint64
    registered: uint256  # the block, where the event has the names and terms


struct Key:
    least: uint64  # that a fresh measurement is charged; 0 for a key that was never declared
    sized: bool  # whether the number of values is fixed
    size: uint256
    requested: uint64
    recorded: uint64  # information of the recorded values; at most what is requested


struct Analyst:
    quota: uint64  # units that this analyst may be charged in all; 0 for nobody's analyst
    used: uint64


struct Look:
    paused: bool
    declared: bool
    sized: bool
    size: uint256
    cap: uint64
    minimum: uint64
    spent: uint64
    quota: uint64
    used: uint64
    requested: uint64
    recorded: uint64
    answer: uint256


# How many measurements were ever requested or paid; the next one's number.
measurements: public(uint256)

datasets: public(HashMap[bytes32, DataSet])
analysts: public(HashMap[bytes32, HashMap[address, Analyst]])
keys: public(HashMap[bytes32, HashMap[bytes32, Key]])

# Sum of information * value over the records of a key, for each of its values.
sums: public(HashMap[bytes32, HashMap[bytes32, HashMap[uint256, int256]]])

# What each measurement is, while it waits: the hash of its data set, key, start and information. A record must
# name all four, so that one made for a chain that was reorganised away cannot land on another measurement.
waiting: public(HashMap[uint256, bytes32])

# By hash of data set, caller and idempotency key: the hash of the request, what was bought, what was charged.
answers: HashMap[bytes32, uint256]


event Registered:
    dataset: indexed(bytes32)
    owner: indexed(address)
    oracle: address
    name: String[120]
    unit: String[16]
    neighbours: String[16]
    subject: Bytes[800]
    cap: uint64
    minimum: uint64
    commitment: bytes32


event Declared:
    dataset: indexed(bytes32)
    key: indexed(bytes32)
    declarer: indexed(address)
    name: Bytes[4000]
    question: Bytes[8192]
    grid: int16
    dimension: uint16


event Allowed:
    dataset: indexed(bytes32)
    analyst: indexed(address)
    quota: uint64


event MeasurementRequested:
    number: indexed(uint256)
    dataset: indexed(bytes32)
    key: indexed(bytes32)
    analyst: address
    start: uint64  # what was requested under the key before
    information: uint64  # what is charged, and must be measured
    spent: uint64  # of the data set, with this
    idempotency: bytes32


event Reused:
    dataset: indexed(bytes32)
    key: indexed(bytes32)
    analyst: indexed(address)
    information: uint64  # as asked
    requested: uint64  # as bought before
    idempotency: bytes32


event Paid:
    number: indexed(uint256)
    dataset: indexed(bytes32)
    key: indexed(bytes32)
    payer: address
    name: Bytes[4000]
    information: uint64
    spent: uint64
    idempotency: bytes32


event Fulfilled:
    number: indexed(uint256)
    dataset: indexed(bytes32)
    key: indexed(bytes32)
    start: uint64
    information: uint64
    grid_values: DynArray[int64, MOST_VALUES]


event Paused:
    dataset: indexed(bytes32)
    paused: bool


event OracleAppointed:
    dataset: indexed(bytes32)
    oracle: indexed(address)


event OwnershipOffered:
    dataset: indexed(bytes32)
    candidate: indexed(address)


event OwnershipTaken:
    dataset: indexed(bytes32)
    owner: indexed(address)


@external
def register(
    name: String[120],
    unit: String[16],
    neighbours: String[16],
    subject: Bytes[800],
    cap: uint64,
    minimum: uint64,
    oracle: address,
    commitment: bytes32,
) -> bytes32:
    """
    @notice Open a data set with its budget, for ever: no call raises a cap.
    @param name How the caller names it; with the caller's address it makes the identifier.
    @param unit What the cap adds up: mu2, epsilon or epsilon_per_km.
    @param neighbours The neighbouring relation of every release.
    @param subject Whose data is protected, in words (UTF-8).
    @param cap Units of 1e-12 that may be spent in all.
    @param minimum The least that a fresh measurement is charged, for each value that its key was declared with: whoever
        asks for many pays for many, since recording them costs the oracle gas.
    @param oracle Who alone records values.
    @param commitment A keyed commitment to the declaration of the data set, with a fresh nonce; never a hash of data.
    @return The identifier.
    """
    dataset: bytes32 = keccak256(abi_encode(msg.sender, name))
    assert self.datasets[dataset].owner == empty(address), "ledger: registered already"
    assert len(name) > 0, "ledger: name is empty"
    assert cap > 0 and cap <= MAX_UNITS, "ledger: cap out of range"
    assert minimum > 0 and minimum <= cap, "ledger: minimum out of range"
    assert oracle != empty(address), "ledger: oracle is empty"
    self.datasets[dataset] = DataSet(
        owner=msg.sender,
        candidate=empty(address),
        oracle=oracle,
        paused=False,
        cap=cap,
        minimum=minimum,
        spent=0,
        registered=block.number,
    )
    log Registered(
        dataset=dataset,
        owner=msg.sender,
        oracle=oracle,
        name=name,
        unit=unit,
        neighbours=neighbours,
        subject=subject,
        cap=cap,
        minimum=minimum,
        commitment=commitment,
    )
    return dataset


@external
def declare(
    dataset: bytes32, name: Bytes[4000], question: Bytes[8192], grid: int16, dimension: uint16
) -> bytes32:
    """
    @notice Say what is measured under a key. All of it makes the identifier, so a false declaration is another key.
        Refused if the least that one measurement is charged passes the cap.
    @param dataset The identifier that `register` gave.
    @param name The key as the ledger names it.
    @param question What the oracle must measure, for it to check against the data set's declaration.
    @param grid 2**grid units of a value are one unit of what is measured.
    @param dimension How many values a record has; 0 leaves it to the first record.
    @return The identifier of the key.
    """
    assert self._may_declare(dataset, msg.sender), "ledger: not allowed"
    return self._declare(dataset, name, question, grid, dimension)


@external
def request(dataset: bytes32, key: bytes32, information: uint64, idempotency: bytes32) -> uint64:
    """
    @notice Buy information about a key: what is bought already is free, the rest is charged to data set and caller.
    @param dataset The identifier that `register` gave.
    @param key The identifier that `declare` gave.
    @param information How much must be bought under the key in all.
    @param idempotency A repeated call with the same is answered as the first was; empty for none.
    @return What was charged.
    """
    place: bytes32 = self._answer_place(dataset, msg.sender, idempotency)
    body: uint256 = self._body(b"request", key, information)
    if idempotency != empty(bytes32) and self.answers[place] != 0:
        return self._answered(self.answers[place], body)
    is_owner: bool = msg.sender == self.datasets[dataset].owner
    quota: uint64 = self.analysts[dataset][msg.sender].quota
    assert is_owner or quota > 0, "ledger: not allowed"
    least: uint64 = self.keys[dataset][key].least
    assert least > 0, "ledger: unknown key"
    assert information > 0 and information <= MAX_UNITS, "ledger: information out of range"
    requested: uint64 = self.keys[dataset][key].requested
    if information <= requested:
        log Reused(
            dataset=dataset,
            key=key,
            analyst=msg.sender,
            information=information,
            requested=requested,
            idempotency=idempotency,
        )
        if idempotency != empty(bytes32):
            self.answers[place] = self._answer(body, requested, 0)
        return 0
    charge: uint64 = max(information - requested, least)
    if not is_owner:
        used: uint64 = self.analysts[dataset][msg.sender].used + charge
        assert used <= quota, "ledger: past the quota"
        self.analysts[dataset][msg.sender].used = used
    spent: uint64 = self._charge(dataset, charge)
    self.keys[dataset][key].requested = requested + charge
    number: uint256 = self.measurements
    self.measurements = number + 1
    self.waiting[number] = self._identity(dataset, key, requested, charge)
    if idempotency != empty(bytes32):
        self.answers[place] = self._answer(body, requested + charge, charge)
    log MeasurementRequested(
        number=number,
        dataset=dataset,
        key=key,
        analyst=msg.sender,
        start=requested,
        information=charge,
        spent=spent,
        idempotency=idempotency,
    )
    return charge


@external
def fulfil(
    number: uint256,
    dataset: bytes32,
    key: bytes32,
    start: uint64,
    information: uint64,
    grid_values: DynArray[int64, MOST_VALUES],
):
    """
    @notice Record the values of a measurement, once and for ever.
    @param number Of the measurement.
    @param dataset The identifier that `register` gave.
    @param key Of its request, as are the two that follow.
    @param start What was requested under the key before it.
    @param information What it was charged.
    @param grid_values The measured vector, in grid units.
    """
    assert msg.sender == self.datasets[dataset].oracle, "ledger: not the oracle"
    assert number < self.measurements, "ledger: unknown measurement"
    assert self.waiting[number] != empty(bytes32), "ledger: fulfilled already"
    assert self.waiting[number] == self._identity(dataset, key, start, information), "ledger: another measurement"
    if not self.keys[dataset][key].sized:
        self.keys[dataset][key].sized = True
        self.keys[dataset][key].size = len(grid_values)
    assert len(grid_values) == self.keys[dataset][key].size, "ledger: wrong number of values"
    self.waiting[number] = empty(bytes32)
    self.keys[dataset][key].recorded += information
    weight: int256 = convert(information, int256)
    for i: uint256 in range(len(grid_values), bound=MOST_VALUES):
        self.sums[dataset][key][i] += weight * convert(grid_values[i], int256)
    log Fulfilled(
        number=number,
        dataset=dataset,
        key=key,
        start=start,
        information=information,
        grid_values=grid_values,
    )


@external
def pay(dataset: bytes32, name: Bytes[4000], information: uint64, idempotency: bytes32) -> uint64:
    """
    @notice Charge a release that was made elsewhere, in full, under a fresh name; it counts as recorded, without values.
        Its key is in a space of its own, which nobody can declare or request: whoever sees a payment coming cannot take
        its name first.
    @param dataset The identifier that `register` gave.
    @param name The payment as the ledger names it.
    @param information What it is worth.
    @param idempotency A repeated call with the same is answered as the first was; empty for none.
    @return What was charged.
    """
    key: bytes32 = self._payment(name)
    place: bytes32 = self._answer_place(dataset, msg.sender, idempotency)
    body: uint256 = self._body(b"pay", key, information)
    if idempotency != empty(bytes32) and self.answers[place] != 0:
        return self._answered(self.answers[place], body)
    assert self._may_pay(dataset, msg.sender), "ledger: not allowed"
    assert information > 0 and information <= MAX_UNITS, "ledger: information out of range"
    assert len(name) > 0, "ledger: name is empty"
    assert self.keys[dataset][key].requested == 0, "ledger: key used"
    charge: uint64 = max(information, self.datasets[dataset].minimum)
    spent: uint64 = self._charge(dataset, charge)
    self.keys[dataset][key].sized = True
    self.keys[dataset][key].requested = charge
    self.keys[dataset][key].recorded = charge
    number: uint256 = self.measurements
    self.measurements = number + 1
    if idempotency != empty(bytes32):
        self.answers[place] = self._answer(body, charge, charge)
    log Paid(
        number=number,
        dataset=dataset,
        key=key,
        payer=msg.sender,
        name=name,
        information=charge,
        spent=spent,
        idempotency=idempotency,
    )
    return charge


@external
def allow(dataset: bytes32, analyst: address, quota: uint64):
    """
    @notice Let an analyst be charged so many units in all; 0 takes the leave back. Quotas are fairness: the cap
        alone is the guarantee, and analysts may share what they learn.
    @param dataset The identifier that `register` gave.
    @param analyst Who may ask.
    @param quota In units of 1e-12; below what is used already it stops the analyst.
    """
    self._check_owner(dataset)
    assert quota <= MAX_UNITS, "ledger: quota out of range"
    self.analysts[dataset][analyst].quota = quota
    log Allowed(dataset=dataset, analyst=analyst, quota=quota)


@external
def pause(dataset: bytes32, paused: bool):
    """
    @notice Stop all spending, or go on. What is bought stays readable, and measurements that are paid for may still
        be recorded.
    @param dataset The identifier that `register` gave.
    @param paused Whether spending stops.
    """
    self._check_owner(dataset)
    assert self.datasets[dataset].paused != paused, "ledger: nothing to change"
    self.datasets[dataset].paused = paused
    log Paused(dataset=dataset, paused=paused)


@external
def appoint(dataset: bytes32, oracle: address):
    """
    @notice Name another oracle. What the old one drew and did not record may be drawn anew: hand its files over.
    @param dataset The identifier that `register` gave.
    @param oracle Who alone records values from now on.
    """
    self._check_owner(dataset)
    assert oracle != empty(address), "ledger: oracle is empty"
    self.datasets[dataset].oracle = oracle
    log OracleAppointed(dataset=dataset, oracle=oracle)


@external
def offer(dataset: bytes32, candidate: address):
    """
    @notice Offer the data set to another owner, who must take it; the empty address takes the offer back.
    @param dataset The identifier that `register` gave.
    @param candidate Who may take it.
    """
    self._check_owner(dataset)
    self.datasets[dataset].candidate = candidate
    log OwnershipOffered(dataset=dataset, candidate=candidate)


@external
def take(dataset: bytes32):
    """
    @notice Become the owner, if it was offered.
    @param dataset The identifier that `register` gave.
    """
    assert msg.sender == self.datasets[dataset].candidate, "ledger: not offered"
    self.datasets[dataset].owner = msg.sender
    self.datasets[dataset].candidate = empty(address)
    log OwnershipTaken(dataset=dataset, owner=msg.sender)


@external
@view
def look(dataset: bytes32, key: bytes32, analyst: address, idempotency: bytes32) -> Look:
    """
    @notice All that decides a request, of one moment.
    @param dataset The identifier that `register` gave.
    @param key The identifier of the key.
    @param analyst Who would ask.
    @param idempotency Of the request; empty for none.
    @return See the structure.
    @dev `answer` holds 128 bits of the hash of an earlier request under the idempotency key, then 64 bits of what was
        bought and 64 of what was charged; 0 if there was none.
    """
    held: DataSet = self.datasets[dataset]
    under: Key = self.keys[dataset][key]
    who: Analyst = self.analysts[dataset][analyst]
    return Look(
        paused=held.paused,
        declared=under.least > 0,
        sized=under.sized,
        size=under.size,
        cap=held.cap,
        minimum=held.minimum,
        spent=held.spent,
        quota=held.cap if analyst == held.owner else who.quota,
        used=0 if analyst == held.owner else who.used,
        requested=under.requested,
        recorded=under.recorded,
        answer=self.answers[self._answer_place(dataset, analyst, idempotency)],
    )


@external
@view
def recorded(dataset: bytes32, key: bytes32) -> (uint64, uint64, DynArray[int256, MOST_VALUES]):
    """
    @notice What is requested and recorded under a key, and the sums; each divided by what is recorded is an estimate.
    @param dataset The identifier that `register` gave.
    @param key The identifier of the key.
    @return Requested, recorded, and the sum of information * value for each value.
    """
    found: DynArray[int256, MOST_VALUES] = []
    for i: uint256 in range(self.keys[dataset][key].size, bound=MOST_VALUES):
        found.append(self.sums[dataset][key][i])
    return self.keys[dataset][key].requested, self.keys[dataset][key].recorded, found


@internal
def _charge(dataset: bytes32, charge: uint64) -> uint64:
    """
    @dev Add a charge to what is spent, or refuse; return what is spent.
    """
    assert not self.datasets[dataset].paused, "ledger: paused"
    spent: uint64 = self.datasets[dataset].spent + charge
    assert spent <= self.datasets[dataset].cap, "ledger: past the cap"
    self.datasets[dataset].spent = spent
    return spent


@internal
def _declare(
    dataset: bytes32, name: Bytes[4000], question: Bytes[8192], grid: int16, dimension: uint16
) -> bytes32:
    """
    @dev Write down what is said of a key, once; return its identifier.
    """
    assert len(name) > 0, "ledger: name is empty"
    assert convert(dimension, uint256) <= MOST_VALUES, "ledger: too many values"
    key: bytes32 = self._key(name, question, grid, dimension)
    assert self.keys[dataset][key].least == 0, "ledger: declared already"
    least: uint256 = convert(self.datasets[dataset].minimum, uint256) * max(convert(dimension, uint256), 1)
    assert least <= convert(self.datasets[dataset].cap, uint256), "ledger: past the cap"
    self.keys[dataset][key].least = convert(least, uint64)
    if dimension > 0:
        self.keys[dataset][key].sized = True
        self.keys[dataset][key].size = convert(dimension, uint256)
    log Declared(
        dataset=dataset,
        key=key,
        declarer=msg.sender,
        name=name,
        question=question,
        grid=grid,
        dimension=dimension,
    )
    return key


@internal
@view
def _check_owner(dataset: bytes32):
    """
    @dev Refuse everybody but the owner.
    """
    assert msg.sender == self.datasets[dataset].owner, "ledger: not the owner"


@internal
@view
def _may_pay(dataset: bytes32, caller: address) -> bool:
    """
    @dev Whether the caller holds the data: owner and oracle do.
    """
    return caller == self.datasets[dataset].owner or caller == self.datasets[dataset].oracle


@internal
@view
def _may_declare(dataset: bytes32, caller: address) -> bool:
    """
    @dev Whether the caller may say what is measured: allowed analysts too.
    """
    return self.analysts[dataset][caller].quota > 0 or self._may_pay(dataset, caller)


@internal
@pure
def _key(name: Bytes[4000], question: Bytes[8192], grid: int16, dimension: uint16) -> bytes32:
    """
    @dev The identifier of a key: all that is said of it.
    """
    return keccak256(abi_encode(keccak256(name), keccak256(question), grid, dimension))


@internal
@pure
def _payment(name: Bytes[4000]) -> bytes32:
    """
    @dev The identifier of a payment: a hash of two words, so that it is that of no key, which is a hash of four.
    """
    return keccak256(abi_encode(keccak256(b"payment"), keccak256(name)))


@internal
@pure
def _identity(dataset: bytes32, key: bytes32, start: uint64, information: uint64) -> bytes32:
    """
    @dev What a measurement is, whatever number a chain gave it.
    """
    return keccak256(abi_encode(dataset, key, start, information))


@internal
@pure
def _answer_place(dataset: bytes32, caller: address, idempotency: bytes32) -> bytes32:
    """
    @dev Where the answer to an idempotent call is kept: callers do not share.
    """
    return keccak256(abi_encode(dataset, caller, idempotency))


@internal
@pure
def _body(verb: Bytes[8], key: bytes32, information: uint64) -> uint256:
    """
    @dev 128 bits that tell one idempotent call from another.
    """
    return convert(keccak256(abi_encode(keccak256(verb), key, information)), uint256) >> 128


@internal
@pure
def _answer(body: uint256, bought: uint64, charged: uint64) -> uint256:
    """
    @dev A call and its answer in one word.
    """
    return (body << 128) | (convert(bought, uint256) << 64) | convert(charged, uint256)


@internal
@pure
def _answered(answer: uint256, body: uint256) -> uint64:
    """
    @dev What the same call was charged before; another call is refused.
    """
    assert answer >> 128 == body, "ledger: idempotency key used"
    return convert(answer & (2**64 - 1), uint64)
