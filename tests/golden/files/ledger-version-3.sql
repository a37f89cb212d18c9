BEGIN TRANSACTION;
CREATE TABLE account (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    unit TEXT NOT NULL,
    neighbours TEXT NOT NULL,
    subject TEXT NOT NULL,
    cap BIGINT NOT NULL CHECK (cap > 0 AND cap < 4611686018427387904),
    minimum BIGINT NOT NULL CHECK (minimum > 0 AND minimum <= cap),
    spent BIGINT NOT NULL CHECK (spent >= 0 AND spent <= cap),
    nonce BLOB NOT NULL,
    seal BIGINT NOT NULL
);
INSERT INTO "account" VALUES(0,'account-0','mu2','REPLACE_ONE','one person',1000000000000,1,1000,X'7E8B1406D903BC9137FB69E769742C8D3E36F1C4FED51A608809B08DE9F3E4A0',673499407);
INSERT INTO "account" VALUES(1,'account-1','mu2','ADD_REMOVE_ONE','one person',1000000000000,1,0,X'2F169F9B4E6A1024752209CD5410EBB84959EEE0AC73C29A04C23BD524C12F81',2376827278);
INSERT INTO "account" VALUES(2,'account-2','epsilon','ANY_TWO_VALUES','one person',1000000000000,1,0,X'A5A4F007ABC4DFE1EB19F685EFDE94CA76F77DFF7279DE620DD52074B33FA1C6',2489392210);
INSERT INTO "account" VALUES(3,'account-3','epsilon_per_km','METRIC','one person',1000000000000,1,0,X'08946CD494A2C00B0E9321AF0C225309E9D1B9D14CE8EEB4ED5182031C3F29B0',135968624);
INSERT INTO "account" VALUES(4,'account-4','metric_delta','METRIC','one person',1000000000000,1,0,X'1D8A904C4FFF579BC28FD3A8065762B958F81089579CF2177AE7489A90F7D396',3879960979);
INSERT INTO "account" VALUES(5,'account-5','money','NONE','one person',1000000000000,1,50,X'172F84A65934FC29776758A22AD080B341B497B1967D89A20DBD8420F4D4507B',2052972089);
CREATE TABLE answered (
    account BIGINT NOT NULL REFERENCES account (id),
    idempotency TEXT NOT NULL,
    verb TEXT NOT NULL,
    name TEXT NOT NULL,
    asked BIGINT NOT NULL,
    information BIGINT NOT NULL,
    charged BIGINT NOT NULL,
    entry BIGINT NOT NULL,
    nonce BLOB NOT NULL,
    PRIMARY KEY (account, idempotency)
) WITHOUT ROWID;
INSERT INTO "answered" VALUES(0,'once','request','count/d99f88efd2748a504d038880385ac06d707d58f79436c39742d43ce29ff6e55f',1000,1000,1000,8,X'112A104BD5901F13ABBFDCD11BE28ABFEEA892133B1861AFE6CC4C999CC9C160');
INSERT INTO "answered" VALUES(5,'once','pay','payment:sale',50,50,50,11,X'136D9FDA60260DB541102444F9D106652D4931737A832B2DE40E0828FEDDC1F4');
CREATE TABLE bought (
    id INTEGER PRIMARY KEY,
    account BIGINT NOT NULL REFERENCES account (id),
    name TEXT NOT NULL,
    requested BIGINT NOT NULL CHECK (requested > 0),
    information BIGINT NOT NULL CHECK (information >= 0 AND information <= requested),
    sums TEXT NOT NULL,
    waiting TEXT NOT NULL,
    nonce BLOB NOT NULL,
    seal BIGINT NOT NULL,
    UNIQUE (account, name)
);
INSERT INTO "bought" VALUES(0,0,'count/d99f88efd2748a504d038880385ac06d707d58f79436c39742d43ce29ff6e55f',1000,1000,'1000,-2000','',X'CC2DC8D8ADB6439605FA188ED5F0D8A43930B8E1EB8FC46E63DD9AB6A643910D',516199038);
INSERT INTO "bought" VALUES(1,5,'payment:sale',50,50,'','',X'0D869764040D76F626BE277BC31072F1E85D9376223B23584817A2BA9834304F',3253833765);
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    leaf TEXT NOT NULL
);
INSERT INTO "entry" VALUES(0,'{"origin":"reticent/ledger","type":"ledger","version":"1"}');
INSERT INTO "entry" VALUES(1,'{"account":"0","cap":"1000000000000","commitment":"3aff3eee8d4e8693f28c2d8bac4fb4e044a642ac1112b20ce187d50054682e2b","minimum":"1","neighbours":"REPLACE_ONE","type":"open","unit":"mu2"}');
INSERT INTO "entry" VALUES(2,'{"account":"1","cap":"1000000000000","commitment":"31ab72cafc0415a8ce5eadef89464ee476b134df976591076c3d3597043d1315","minimum":"1","neighbours":"ADD_REMOVE_ONE","type":"open","unit":"mu2"}');
INSERT INTO "entry" VALUES(3,'{"account":"2","cap":"1000000000000","commitment":"3be2eea5d8e07902d37dc5577ca492802178c9fbf7417a1896b80ff8fb5c1cd5","minimum":"1","neighbours":"ANY_TWO_VALUES","type":"open","unit":"epsilon"}');
INSERT INTO "entry" VALUES(4,'{"account":"3","cap":"1000000000000","commitment":"36c6f434d2293600e049ca991aba86534384dbb0aa96bc3e991d0f7c58b26884","minimum":"1","neighbours":"METRIC","type":"open","unit":"epsilon_per_km"}');
INSERT INTO "entry" VALUES(5,'{"account":"4","cap":"1000000000000","commitment":"18fb119767939d958a2fea14a29b8df7a2b16f4a9df157410a67a3ed2430a1e0","minimum":"1","neighbours":"METRIC","type":"open","unit":"metric_delta"}');
INSERT INTO "entry" VALUES(6,'{"account":"5","cap":"1000000000000","commitment":"8ff5709550f1f79e1575b47f20887f1360408b69a790ab8ac3638d37629e193e","minimum":"1","neighbours":"NONE","type":"open","unit":"money"}');
INSERT INTO "entry" VALUES(7,'{"account":"0","charged":"1000","commitment":"ef6bc12efc70a7a0af10ff3f0941cf1742e9875a6f37f67b38cc77db481caf7e","key":"0","measurement":"0","type":"request"}');
INSERT INTO "entry" VALUES(8,'{"account":"0","commitment":"0f3e15338d26cade6bdb33eaede9eb88b64cb99a4d9400eab03d3da13a2c128b","type":"answer"}');
INSERT INTO "entry" VALUES(9,'{"commitment":"eba2196f4bcd4a236275284c11ded21cf6c1ef461b2756c088ca624af6833e35","measurement":"0","type":"fulfil"}');
INSERT INTO "entry" VALUES(10,'{"account":"5","charged":"50","commitment":"6a71e1704203b414fa96496f1ef64865021ef918055ff31d2da85c4e4af8df76","key":"1","measurement":"1","type":"request"}');
INSERT INTO "entry" VALUES(11,'{"account":"5","commitment":"d82dc7602571f620252be13a673ec8bcd6dae7426513703f7d58adc5119d8567","type":"answer"}');
INSERT INTO "entry" VALUES(12,'{"commitment":"69b65ba98c8f5b00b9a8d73571220036708b53b1e3babd5c65e8e319a46d2f51","measurement":"1","type":"fulfil"}');
INSERT INTO "entry" VALUES(13,'{"claim":"epsilon 1","commitment":"cef9c8757e37c1c9f1268004fde98acc722ebf4e25e68149f4395266baf2a0db","type":"audit","verdict":"nothing_found"}');
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    size BIGINT NOT NULL CHECK (size >= 0),
    accounts BIGINT NOT NULL,
    keys BIGINT NOT NULL,
    measurements BIGINT NOT NULL,
    frontier BLOB NOT NULL,
    seal BIGINT NOT NULL
);
INSERT INTO "head" VALUES(1,14,6,2,2,X'AE20AA66B7AAF44DB2F6A1C351773D3F339ABAC73869ADB92707E34485B4C7C7745E060445A5E1B6372A8D861730FBEE8C08226D4583A25992AFD8E4D08A9C5B591012E18DE15BEF51F7985D15D0FADD143596063E113B364ADF4022B218A02A',1878218500);
CREATE TABLE measurement (
    number INTEGER PRIMARY KEY,
    bought BIGINT NOT NULL REFERENCES bought (id),
    information BIGINT NOT NULL CHECK (information > 0),
    recorded TEXT,
    nonce BLOB
);
INSERT INTO "measurement" VALUES(0,0,1000,'1,-2',X'09DFB269BED6186424D76680F5B936B858B844472CBC5E1EA59D24282E8B3E31');
INSERT INTO "measurement" VALUES(1,1,50,'',X'8E3861D2FA66ED662D44F14E3AFD36E33558C81A767416122E4BB90851E11F7D');
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    setting TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('origin','reticent/ledger');
INSERT INTO "meta" VALUES('version','3');
CREATE TABLE node (
    level BIGINT NOT NULL,
    number BIGINT NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (level, number)
) WITHOUT ROWID;
CREATE TABLE question (
    bought INTEGER PRIMARY KEY REFERENCES bought (id),
    wording TEXT NOT NULL,
    numbers TEXT NOT NULL
);
INSERT INTO "question" VALUES(0,'{"measured":"count"}','0');
COMMIT;
