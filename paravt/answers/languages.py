"""The words that choices are made of, language by language: regular expressions, in lower case, without capturing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """
    What a language says about choices; each field is an alternation, "" where it has nothing of its own.

    Args:
        answer (`str`): Names of the answer: `answer`.
        option (`str`): Names of an option before its letter: `option B`.
        option_after (`str`): Names of an option after its letter: `B选项`.
        link (`str`): What joins answer and letter: `is`.
        soft (`str`): What may stand between them and changes nothing: `most likely the`.
        choose (`str`): Verbs before the letter: `I choose B`.
        right_after (`str`): What after a letter says that it is the one: `B is correct`.
        therefore (`str`): What draws a conclusion before the letter: `so B`, `it is B`.
        perhaps (`str`): The same, but doubtful: `it could be B`.
        final (`str`): What makes an answer the last one: `final`.
        join (`str`): What joins letters: `A or B`.
        because (`str`): What follows a letter with reasons: `B because`.
        not_ (`str`): What denies, or leaves open, the letter that follows: `not B`, `whether B`.
        denied (`str`): What denies the letter before it: `B is wrong`.
        fill (`str`): Words that may stand between a denial and its letter: `not that it is B`.
        condition (`str`): What makes the letter before it one of several cases: `A if it rains`.
        case (`str`): What makes all that follows in a sentence one of several cases: `if it rains`.
        right (`str`): What an answer is called: `correct`.
        survey (`str`): What announces that the options are looked at one by one.
        yes (`str`): What says of an option that it holds: `A: true`.
        no (`str`): What says of an option that it does not hold: `A: false`.
        all_ (`str`): What names all options: `everything`.
        none (`str`): What names no option: `nothing`.
        except_ (`str`): What sets the letter that follows apart: `except B`.
        except_after (`str`): What sets the letter before it apart: `B以外`.
        revision (`str`): What takes back all that was said before: `wait, no`.
        also (`str`): What beside a letter sets it beside another one: `C works too`.
        possible (`str`): What, with that, says that it is right as well: `C is also possible`.
        asks (`str`): What begins a question: `is the answer B?`
        asked (`str`): What makes a question of what stands before it: `是B吗`.
        spaced (`bool`): Whether words are written with spaces between them.
    """

    answer: str = ""
    option: str = ""
    option_after: str = ""
    link: str = ""
    soft: str = ""
    choose: str = ""
    right_after: str = ""
    therefore: str = ""
    perhaps: str = ""
    final: str = ""
    join: str = ""
    because: str = ""
    not_: str = ""
    denied: str = ""
    fill: str = ""
    condition: str = ""
    case: str = ""
    right: str = ""
    survey: str = ""
    yes: str = ""
    no: str = ""
    all_: str = ""
    none: str = ""
    except_: str = ""
    except_after: str = ""
    revision: str = ""
    also: str = ""
    possible: str = ""
    asks: str = ""
    asked: str = ""
    spaced: bool = True


LANGUAGES = {
    "English": Language(
        answer=(
            r"result|"
            r"(?:one|option|choice|statement|description) (?:that|which)(?! is (?:wrong|false|incorrect|"
            r"not))|option(?= is )|answers?(?! choices| options)|anwser|awnser|asnwer|answr|answear|corr?ect|"
            r"ans|solution|selection|verdict|conclusion|response|my (?:guess|pick|choice|vote)|"
            r"(?:correct|best|closest|corresponding|matching|appropriate|likeliest|most (?:likely|accurate|"
            r"plausible|appropriate|suitable)) \w+(?: \w+)?|"
            r"(?:right|final) (?:\w+ )?(?:option|choice|letter|description|statement|order|sequence|one|"
            r"pick)|choice|correct"
        ),
        option=r"options?|optoin|opiton|optio|choices?|letter|answer choice|answer option|answer|candidate",
        link=(
            r"is|are|was|be|it's|"
            r"(?:would|should|must|could|might|may|can only|has to|have to|will|ought to) be|"
            r"(?:would|must) have to be|seems?(?: to be)?|appears?(?: to be)?|remains|becomes|equals|as|"
            r"points? to|here is"
        ),
        soft=(
            r"\d{1,3} ?%|its|most likely|most probably|likely|probably|clearly|definitely|certainly|"
            r"obviously|surely|therefore|thus|indeed|actually|simply|then|still|just|only|the|that|option|"
            r"choice|letter|answer|correct|right|one|i think|i believe|i guess|i'd say|in my opinion|"
            r"undoubtedly|evidently|it is|it's|it must be|it has to be|it would be|is|be|also|possibly|"
            r"perhaps|maybe|even|labell?ed|marked"
        ),
        choose=(
            r"answer(?:ing)? with|going to (?:say|choose|pick|answer|go with)|"
            r"i am (?:confident|sure|certain)(?: that)?|"
            r"(?:choos|pick|select|opt|vot|settl|conclud|suspect|mark|prefer|favou?r)(?:e|es|ed|ing|s)?"
            r"(?: for| on| that)?|"
            r"choose|chose|vote for|settle on|conclude|"
            r"(?:go|going|went|stick|sticking|end up|leaning|lean) (?:with|for|towards?|to)|lean(?:ing)?|"
            r"i(?:'d| would|'ll| will)? (?:say|guess|think|believe|answer|pick|take)|"
            r"i'm (?:confident|sure|certain)(?: that)?"
        ),
        right_after=(
            r"(?:matches|fits|applies|works)(?=[.!,]|$)|(?:fits|suits|matches|works) (?:it )?(?:better|best)(?! than)|"
            r"✅|✔|✓|☑|👍|remains(?= *[.!]?$)|"
            r"is (?:all that is |what is |the only one )?left\b|"
            r"(?:is|was|seems?(?: to be)?|looks|appears?(?: to be)?|must be|would be|has to be|are|sounds|"
            r"being) (?:(?:the|my|most|clearly|obviously|definitely|indeed|therefore|thus|only|likely|also|"
            r"all|both|a|better|more) )*(?:correct|corect|right|rigth|true|best|accurate|answer|(?:better|"
            r"best|closest) (?:match|fit|answer|choice|option)|choice|pick|option|match|fit|likely|plausible|"
            r"appropriate|one|(?:better|best|more|most) (?!wrong|incorrect|unlikely)\p{L}+)(?! if)|"
            r"(?:best )?(?:matches|fits|describes) (?:best|the video|what)|best (?:matches|fits|describes)|"
            r"it is(?=[.!]?\s?$)"
        ),
        therefore=(
            r"(?:by (?:the |a )?)?process of elimination|by (?:elimination|exclusion|deduction)|"
            r"points? to|it is|it's|this is|that is|that's|that would be|"
            r"it (?:must|has to|can only|should|would|will) be|must be|has to be|so|therefore|thus|hence|"
            r"accordingly|consequently|in conclusion|definitely|clearly|but rather|"
            r"(?<!anything |everything |all |nothing |none |any )but|leaves(?: us with)?|"
            r"which (?:is|makes it|means|gives)|makes it|corresponds to|matches|leads to|i'm going with|i say"
        ),
        perhaps=(
            r"probably|likely|most likely|maybe|perhaps|possibly|"
            r"(?:it|this|that) (?:could|might|may)(?: well| also)? be|seems like|looks like|seems|"
            r"not sure,? (?:but|maybe)|guess|could be|might be|may be|either|both"
        ),
        final=r"final|ultimate",
        join=r"to|through|and/or|or|and|vs\.?|versus|nor|as well as|plus",
        because=(
            r"because|since|as|for|due|given|based|considering|which|where|when he|when she|when the|but|so|"
            r"if you look|after|according|judging|in|on|at|from|with|shows?|and"
        ),
        not_=(
            r"(?:was|were) (?:\w+ )?(?:going|about|tempted|inclined|leaning|ready) (?:to(?:wards?)?|for)(?: (?:say|"
            r"choose|pick|answer|"
            r"guess|select|go (?:with|for)))?|(?:almost|nearly|first|originally) (?:said|chose|picked|answered|"
            r"went (?:with|for)|thought)|"
            r"over(?=\s?\Z|\s(?:option )?(?-i:[A-Z])(?![\p{L}\d]))|lack(?:s|ed|ing)?|"
            r"while|although|though|not|\w+n't|cannot|cant|dont|isnt|"
            r"(?:are|was|were|does|did|wo|has|have|had|would|could|should|ai)nt|never|neither|nor|no|non|"
            r"without|except|thought|assumed|at first(?: glance| sight)?|initially|"
            r"(?:one|you|some|someone|people|many) (?:might|could|would|may) (?:say|think|guess|argue|choose|"
            r"pick)|tempt(?:ed|ing) to|seemed|excluding|excludes?|unlike|rather than|instead of|"
            r"rul(?:e|es|ed|ing) out|eliminat(?:e[sd]?|ing)|discard\w*|reject\w*|doubt\w*|whether|if|unless|against|"
            r"than|other than|hardly|(?:anything|everything|all|any|none) but|wrong(?:ly)?|incorrect(?:ly)?|"
            r"false"
        ),
        denied=(
            r"❌|✗|✘|✖|☐|🚫|👎|"
            r"(?:is|was|are|were|seems?|looks?|would be|can be|could be|must be|being|sounds)?\s?(?:also |"
            r"clearly |definitely |probably |obviously |both |all |simply |completely |just )*(?:not\b|"
            r"incorrect|wrong|false|ruled out|eliminated|excluded|out\b|inaccurate|unlikely|impossible|"
            r"a distractor|distractors|(?:a |very |pretty |quite )*close\b(?! to)|tempting|irrelevant|unsupported|"
            r"off\b|n't)|"
            r"(?:is|was|are|were|does|do|did|can|could|would)(?:n't| not|not)|cannot|can't|never|contradicts|"
            r"fails|comes? (?:very |pretty )?close"
        ),
        fill=(
            r"that|the|case|it|is|its|it's|be|sure|certain|think|believe|say|choose|choosing|pick|select|go|going|"
            r"with|to|would|could|should|must|can|(?-i:an?)|at|all|really|even|necessarily|for|of|whether|if|"
            r"either|was|convinced|confident|definitely|just|only|likely|possible|means?|seem|look|like|want"
        ),
        condition=r"if (?!you)|when(?:ever)? |unless |in case |otherwise|only if|assuming ",
        case=r"if(?! (?:you|we|i|one)\b)|otherwise|unless|assuming",
        right=r"correct|right|best|true",
        survey=(
            r"each (?:option|choice|answer|of the)|(?:options|choices|them|these) (?:one by one|in turn)|"
            r"one by one|"
            r"let's (?:analyze|analyse|consider|examine|evaluate|go through|look at|check)(?: the| all|"
            r" each)? (?:options|choices)"
        ),
        yes=r"yes|true|right|correct|(?-i:T)|✅|✔|✓|☑|○|◯|⭕",
        no=r"no|nope|not|false|wrong|incorrect|untrue|(?-i:F)|❌|✗|✘|✖|×|☐|🚫",
        all_=r"everything|every|all|each",
        none=r"none|nothing|no(?: other)?(?: option| choice| answer)s?",
        except_=(
            r"except(?: for)?|but|other than|apart from|aside from|besides|save(?: for)?|excluding|"
            r"with the exception of"
        ),
        revision=(
            r"wait|actually|no[,.]|nope|correction|scratch that|on second thoughts?|on reflection|sorry|"
            r"i mean|i meant|let me (?:reconsider|correct)|hold on|changed my mind|my mistake|rather,|oops|"
            r"hmm"
        ),
        also=(
            r"also|too|as well|likewise|equally|additionally|alternatively|"
            r"(?:so|as) (?:is|are|does|do|was|would|could|might)(?: be)?"
        ),
        possible=(
            r"possible|works?|fits?|valid|acceptable|fine|okay|ok|an? (?:option|possibility|valid \p{L}+)|"
            r"appl(?:y|ies)|match(?:es)?|be (?:it|the one)"
        ),
        asks=(
            r"is|are|was|were|isn't|wasn't|could|couldn't|can|can't|might|would|wouldn't|should|shouldn't|may|"
            r"does|do|did|what about|how about"
        ),
    ),
    "Chinese": Language(
        answer=(
            r"答案|正解|正确(?:的)?(?:选项|答案|选择|描述|说法)?(?!是指)|正確(?:的)?(?:選項|答案)?|最佳选项|"
            r"结论|解答|最?(?:符合|合适|恰当|匹配|接近)[^。,\n]{0,8}的(?:选项)?(?=是|为)|我的选择|选择题答案|"
            r"选出的是"
        ),
        option=r"选项|選項|选择|答案|字母|第",
        option_after=r"选项|選項|项|項|这个选项|答案",
        link=(
            r"应该是|應該是|应当是|应是|应为|應為|就是|便是|只能是|可能是|大概是|是|为|為|选择|选|選擇|選|即|"
            r"乃|显然是|一定是|必定是"
        ),
        soft=r"应该|應該|选择|选|選|选项|選項|字母|很可能|可能|大概|显然|一定|肯定|必定|就|是|为|的|最",
        choose=(
            r"选择了?|选|選擇|選|挑选?|我认为(?:答案)?(?:应该)?是|我觉得(?:答案)?(?:应该)?是|我想是|我猜是?|"
            r"倾向于|認為是|应该是|應該是"
        ),
        right_after=(
            r"(?:选项|選項|项|項)?(?:才|应该|應該|显然|明显|就)?(?:是|为|為)?(?:最)?(?:正确|正確|对的|對的|"
            r"对(?![的于照])|正解|符合(?!的不)|有?可能|可能性最?[大高]|合适|答案|准确|合理|恰当)"
        ),
        therefore=(
            r"(?:通过|用|由)?排除法(?:可知|得出?|可得)?|只剩下?|剩下|所以|因此|故选?|故此|因而|综上|可知|那么就?是|而是|是|即|就是|一定是|显然是|"
            r"必然是|于是"
        ),
        perhaps=r"可能是|也许是?|或许是?|大概是?|好像是|似乎是|也可能是|恐怕是|说不定是",
        final=r"最终|最後|最后|最終",
        join=r"而且是?|或者是?|或是|或|和|与|與|及|以及|还是|還是|并且|跟|、",
        because=r"因为|因為|由于|理由|原因|,|根据|这|该|视频|画面|从",
        not_=(
            r"(?:本来|原本|本|差点)(?:想|要|打算)?(?:说|选|选择|答)|缺[少乏]?|虽然|尽管|不是|并非|並非|不会是|不可能是|不选|不選|不应(?:该)?(?:选|是)|而非|不|非|没有|"
            r"排除(?!法)|"
            r"如果|是否|除了|而不是|无法确定|不能|未必|若|别选"
        ),
        denied=(
            r"(?:选项|選項|项|項)?(?:是|都|均|也|则|就|明显|显然|可以|应|被)*(?:不(?!错)|错|錯|非|误|被?排除|"
            r"有误|没有|无关|除外|并不|并非)"
        ),
        fill=r"认为|觉得|想|是|选项|選項|的|应该|该|选|選",
        condition=r"如果|的话|若",
        case=r"如果|假如|若|否则",
        survey=r"逐[项一个条]|一一(?:分析|看)|依次|(?:分析|看看)(?:各|每)个?选项",
        yes=r"对|對|是|正确|正確|符合",
        no=r"错误?|錯誤?|否|不对|不對|不是|不正确|不正確|不符合?",
        all_=r"都|全部?|均|所有|其[他它余]",
        except_=r"除了?",
        except_after=r"(?:选项)?(?:以外|之外)",
        revision=r"等等|不对,?|不对|更正|其实|实际上|哦不|等一下|重新考虑|再想想|改选",
        also=r"也|同样|亦",
        possible=r"可能|(?:可以|行|对|對)(?=[。.,;!]|$)|成立|正确|正確|合理",
        asked=r"吗|嗎|么|對不對|对不对|是不是",
        spaced=False,
    ),
    "Japanese": Language(
        answer=r"答え|解答|正解|正答|回答|正しい(?:の|もの|選択肢|答え|解答)|選択|私の答え|結論",
        option=r"選択肢|選択|記号|オプション|答え",
        option_after=r"の選択肢|番|が",
        link=r"として|は、|は,|は|が、|が|も",
        soft=r"おそらく|たぶん|多分|きっと|やはり|選択肢|間違いなく|明らかに|,|、|の",
        choose=r"私は(?=[A-Za-z])",
        right_after=(
            r"(?:の|と|が|こそ|だけ|番)*(?:一番|最も|もっとも)?(?:正解|正しい|正答|適切|答え|ふさわしい|"
            r"合っている|当てはまる|該当|可能性が(?:最も|一番)?高|有力|もっともらし)|"
            r"(?:だ|である|になる|なの(?:だ|では)|です|であ)?と(?:思|考え|判断|言え|いえ|推測|なり|なる)|"
            r"(?:の選択肢)?(?:を|に)(?:選|します|決め|する|なります)|"
            r"(?:番|の方)?(?:です|だ|である|になります|でしょう)(?!が|けど|か[?。]?)"
        ),
        therefore=(
            r"消去法で(?:は|、|,)?|残るの?は|残りは|よって|したがって|従って|ゆえに|つまり|だから|なので|すなわち|ではなく|"
            r"じゃなくて"
        ),
        perhaps=r"おそらく|たぶん|多分|もしかすると",
        final=r"最終(?:的な)?(?:の)?|最後の",
        join=r"も|でも|または|もしくは|あるいは|か|と|や|、|及び|および",
        because=r"なぜなら|です|だ|。|で|という|の|は|が|を|に|と|なので|である|番|理由",
        not_=r"もし|以外|除外",
        denied=(
            r"(?:の選択肢)?(?:は|も|が|で|だ|と|ということ)*(?:では|じゃ|では|とは)?(?:ない|なく|ありません|"
            r"違|間違|不正解|誤|正しくない|正しくあり|不適切|当てはまらない|当てはまりません|合わ|合いません|"
            r"除外|言えない|言えません|思わない|思いません|限らない)"
        ),
        condition=r"の場合|なら|ならば",
        survey=r"(?:各|それぞれの?)選択肢を|一つずつ|順番に",
        yes=r"正しい|正解|はい|合っている|正",
        no=r"間違い|間違っている|誤り|不正解|いいえ|正しくない|誤",
        all_=r"すべて|全て|全部|みな|他",
        except_after=r"以外|を除",
        revision=r"いや、|いや,|いえ、|いえ,|訂正|待って|やっぱり|考え直|すみません",
        also=r"も",
        possible=r"可能性|あり得|ありえ|正解|正しい|考えられ",
        asked=r"(?:です|でしょう|ます|だろう|なの|の)?か",
        spaced=False,
    ),
    "Korean": Language(
        answer=r"정답|답안|해답|답변|답|올바른 (?:선택지?|보기|것)|최종 선택|제 선택|내 선택|결론",
        option=r"선택지|보기|옵션|선택|정답|답|항목",
        option_after=r"번|항|안",
        link=r"으로는|은요?|는|이|가|란",
        soft=r"아마도?|분명히?|당연히|바로|역시|확실히|선택지|보기|옵션|번",
        choose=r"저는(?= ?[A-Za-z])|나는(?= ?[A-Za-z])",
        right_after=(
            r"(?:번|안|항)?(?:이|가|은|는)? ?(?:가장 |제일 )?(?:정답|답(?!은)|맞|옳|올바|적절|적합|정확|알맞|"
            r"가능성이 (?:가장 |더 )?(?:높|크)|유력|타당|그럴듯)|"
            r"(?:번|안|항)?(?:을|를|으로|로) ?(?:선택|고르|고릅|고를|골|택|하겠|정하|뽑)|"
            r"(?:번|안|항)?(?:입니다|이에요|예요|이다|이야|이라고|라고|인 것|일 것|이죠|죠|이네요)(?!만)"
        ),
        therefore=(
            r"소거법(?:으로|에 따라|에 의해)?|남은 것은|남는 것은|따라서|그러므로|그래서|결국|즉|결론적으로|아니라|"
            r"고로"
        ),
        perhaps=r"아마도?|어쩌면",
        final=r"최종(?:적인|적으로)?|마지막",
        join=r"또는|혹은|이나|나|와|과|하고|및|이랑|랑|아니면|이거나|거나",
        because=r"왜냐하면|때문|입니다|이다|번|이유|은|는|이|가|를|을|라고|로|으로|라|이라",
        not_=r"만약|만일|제외",
        denied=(
            r"(?:번|안|항)?(?:은|는|이|가|도|을|를|라고|이라고|일)? ?(?:확실히 |분명히 |절대 |정답이 |답이 |"
            r"수 |수는 )*(?:아니|아닙|아닌|아닐|틀[린리렸립]|오답|잘못|제외|없|맞지 않|옳지 않|적절하지 않|"
            r"생각하지 않|부적절)"
        ),
        condition=r"인 경우|라면|이라면|일 경우",
        survey=r"각 (?:선택지|보기|항목)|하나씩|차례로",
        yes=r"맞음|맞다|맞습니다|참|예|네|정답|옳음|옳다",
        no=r"틀림|틀리다|틀렸습니다|틀린|거짓|아니요|아니오|오답",
        all_=r"모두|전부|다|나머지",
        except_after=r"[을를]? ?(?:제외|빼고)|(?:이?외)에?",
        revision=r"아니,|아니요,|잠깐|다시 생각|정정|사실은|아, ",
        also=r"도",
        possible=r"가능|맞|될 수|정답",
        asked=r"(?:인|일|입니|습니)?(?:가요|나요|까요?)",
        spaced=False,
    ),
    "Spanish": Language(
        answer=(
            r"respuestas?|solución|"
            r"(?:opción|alternativa|letra|elección|opcion) (?:más \w+|correcta|adecuada|acertada)|"
            r"mi (?:elección|opción)|contestación|la correcta|la (?:opción|alternativa) que \w+|resp\.?|"
            r"correcta"
        ),
        option=r"opci[óo]n(?:es)?|letra|alternativa|inciso|respuesta|literal",
        link=(
            r"es|sea|sería|seria|debe(?:ría)? ser|tiene que ser|parece(?: ser)?|son|corresponde a|será|"
            r"podría ser|puede ser"
        ),
        soft=(
            r"correcta|la|el|las|los|opción|letra|probablemente|claramente|definitivamente|sin duda|"
            r"seguramente|más probable|es|que es|que|sería|correcta"
        ),
        choose=(
            r"elijo|eligiría|elegiría|escojo|escogería|selecciono|opto por|me quedo con|me inclino por|"
            r"diría(?: que)?|creo que(?: es)?|pienso que(?: es)?|marco|marcaría|voto por|voy con|"
            r"considero que(?: es)?"
        ),
        right_after=(
            r"(?:es|sería|parece(?: ser)?|son|está) (?:(?:la|el|las|claramente|más|opción|respuesta|mi|"
            r"una) )*(?:correct[ao]s?|adecuada|acertada|respuesta|opción(?! in)|mejor|verdadera|elección|"
            r"que mejor|apropiada|probable)"
        ),
        therefore=(
            r"por (?:eliminación|descarte)|sería|es|solo queda|queda|por lo tanto|por tanto|así que|entonces|luego|"
            r"por ende|en conclusión|"
            r"sino(?: que| más bien)?|pero(?: sí)?|se trata de|tiene que ser|debe ser|por eso"
        ),
        perhaps=(
            r"quizás?|tal vez|probablemente|posiblemente|podría ser|puede(?: que)? ser?|puede que sea|"
            r"a lo mejor"
        ),
        final=r"final|definitiva",
        join=r"así como|y/o|o|u|y|e|como|o bien|o quizás?|ni",
        because=r"porque|ya que|pues|puesto que|dado que|debido|según|en|es|está|por",
        not_=(
            r"(?:iba|estuve a punto|pensaba|quería)(?: a| de)? (?:decir|elegir|escoger|responder)|carece de|aunque|"
            r"no|ni|nunca|tampoco|excepto|salvo|si|en vez de|en lugar de|(?<!por )descart\w+|sin|dudo|"
            r"que no sea|(?<!por )elimin\w+|incorrecta"
        ),
        denied=(
            r"(?:no (?:es|son|puede|está|parece|coincide|aparece|se|corresponde)|(?:es|son|está|están|queda|"
            r"quedan)? ?(?:también |claramente |ambas )?(?:incorrect[ao]s?|fals[ao]s?|equivocad[ao]s?|"
            r"errón\w+|descartad[ao]s?|no\b))"
        ),
        fill=(
            r"es|la|el|opción|creo|que|sea|respuesta|por|letra|seguro|segura|de|estoy|pienso|elijo|elegiría|"
            r"puede|ser"
        ),
        condition=r"si ",
        case=r"de lo contrario|si no",
        right=r"correct[ao]",
        survey=r"cada (?:opción|una)|una por una|opción por opción",
        yes=r"sí|verdader[oa]|correct[oa]|ciert[oa]",
        no=r"no|fals[oa]|incorrect[oa]",
        all_=r"tod[oa]s?",
        none=r"ningun[oa]|ninguna opción|nada",
        except_=r"excepto|salvo|menos",
        revision=r"espera|no,|mejor dicho|perdón|corrijo|pensándolo bien|en realidad|rectifico|un momento",
        also=r"también|igualmente|asimismo",
        possible=r"posibles?|válid[oa]s?|sirve|vale|encaja",
    ),
    "French": Language(
        answer=(
            r"réponses?|reponse|solution|(?:bonne|meilleure) (?:option|réponse|proposition)|"
            r"(?:option|proposition|lettre|affirmation) (?:correcte|exacte|juste)|mon choix|bon choix|choix|"
            r"rép\.?"
        ),
        option=(
            r"(?:l['’])?option|options|(?:la )?lettre|(?:la )?proposition|réponse|choix|alternative|"
            r"affirmation"
        ),
        link=(
            r"est|soit|serait|semble(?: être)?|doit être|devrait être|sont|c['’]est|correspond à|sera|"
            r"ne peut être que|pourrait être|peut être"
        ),
        soft=(
            r"la|le|les|l['’]option|probablement|clairement|certainement|sans doute|donc|évidemment|sûrement|"
            r"bien|que|c['’]est|est|très"
        ),
        choose=(
            r"je (?:choisis|choisirais|sélectionne|prends|retiens|réponds|coche|vote pour|penche pour)|"
            r"j['’](?:opte|opterais) pour|je (?:dirais|pense|crois|dis)(?: que)?|j['’]ai choisi|choisis|"
            r"à mon avis,? c['’]est"
        ),
        right_after=(
            r"(?:est|serait|semble(?: être)?|sont|me semble|paraît) (?:(?:la|le|les|bien|clairement|plus|"
            r"réponse|donc|une|mon) )*(?:correcte?s?|exacte?|juste|vraie?|bonne|meilleure?|réponse|adaptée|"
            r"choix|bon|appropriée)"
        ),
        therefore=(
            r"par élimination|ce serait|ce sera|(?:il )?ne reste (?:plus )?que|(?:il )?reste|c['’]est(?: donc)?|donc|"
            r"ainsi|"
            r"par conséquent|il s['’]agit de|mais|en conclusion|alors|d['’]où|ce doit être|ce qui donne"
        ),
        perhaps=(
            r"peut-être|probablement|sans doute|ce pourrait être|possiblement|ça pourrait être|"
            r"cela pourrait être"
        ),
        final=r"finale?|définitive",
        join=r"tout comme|et/ou|ou bien|ou|et|ainsi que|ni|soit",
        because=r"car|parce|puisque|étant|en raison|d['’]après|selon|est|dans|qui|à",
        not_=(
            r"(?:j['’]allais|je voulais|j['’]étais tenté de) (?:dire|choisir|répondre)|manque de|bien que|même si|"
            r"pas|n['’]est|ni|sauf|jamais|si|non|aucune?|plutôt que|au lieu de|(?<!par )élimin\w+|"
            r"exclu\w*|écart\w+|doute que|hormis|excepté"
        ),
        denied=(
            r"n['’]est|ne \w+ pas|"
            r"(?:est|sont|semble)? ?(?:aussi |clairement |donc )?(?:incorrecte?s?|fausses?|faux|erronée?s?|"
            r"exclue?s?|éliminée?s?|inexacte?|pas\b)"
        ),
        fill=(
            r"la|le|est|que|soit|option|je|pense|réponse|c['’]est|ce|sûre?|bonne|l['’]option|choisis|de|une|"
            r"ne"
        ),
        condition=r"si ",
        case=r"sinon|autrement",
        right=r"correcte?|bonne",
        survey=r"chaque (?:option|proposition|réponse)|une par une|une à une",
        yes=r"oui|vraie?|exacte?|juste|correcte?",
        no=r"non|faux|fausse|inexacte?|incorrecte?",
        all_=r"toute?s?|tous",
        none=r"aucune?|rien",
        except_=r"sauf|hormis|excepté|à part|à l['’]exception de",
        revision=(
            r"attendez|non,|en fait|pardon|plutôt,|je corrige|finalement|ou plutôt|à la réflexion|"
            r"je me trompe"
        ),
        also=r"aussi|également|de même(?: que)?",
        possible=r"possibles?|valables?|convient|fonctionne|marche|valides?",
        asks=r"est-ce(?: que)?|serait-ce|la (?:bonne )?réponse est-elle|ne serait-ce pas",
    ),
    "German": Language(
        answer=(
            r"antwort(?:en)?|lösung|"
            r"richtig(?:e|er|es)?(?: (?:option|auswahl|wahl|aussage|buchstabe|antwortmöglichkeit))?|"
            r"meine wahl|korrekt(?:e)?(?: (?:option|auswahl|wahl|aussage))?|auswahl|ergebnis|"
            r"(?:beste|passende) (?:option|wahl|antwort)"
        ),
        option=(
            r"option(?:en)?|antwort|buchstabe|möglichkeit|variante|antwortmöglichkeit|auswahl|lösung|"
            r"antwortoption"
        ),
        link=r"ist|lautet|wäre|sind|muss|müsste|sollte|dürfte|scheint|heißt|entspricht|kann nur",
        soft=(
            r"die|der|das|den|wohl|wahrscheinlich|eindeutig|vermutlich|also|klar|daher|somit|sicher|"
            r"definitiv|ganz|option|antwort|buchstabe|für|mit"
        ),
        choose=(
            r"(?:ich )?würde(?: mich)?(?: eher| daher| also| deshalb)?(?: für| auf)?|mich für|"
            r"(?:ich )?(?:wähle|nehme|tippe auf|würde sagen|sage|denke|glaube|entscheide mich für|stimme für|"
            r"bin für|plädiere für)|meiner meinung nach|nehmen wir"
        ),
        right_after=(
            r"(?:richtig\w*|korrekt\w*|zutreffend|die \w+ antwort) (?:ist|wäre|sei)|zutrifft|"
            r"(?:ist|wäre|scheint|sind|muss|passt|stimmt|trifft)(?: (?:die|am|wohl|eindeutig|also|daher|"
            r"meine|klar|hier|der|das))*(?: (?:richtig\w*|korrekt\w*|antwort|zutreffend|beste?n?|lösung|wahl|"
            r"wahrscheinlichste\w*|zu(?![ \w]*nicht)|am besten|sein))?(?<!ist|wäre|sind|muss|"
            r"scheint)(?! nicht)"
        ),
        therefore=(
            r"(?:durch|per|nach dem|im) ausschluss(?:verfahren|prinzip)?|am ehesten|am besten(?: passt)?|es passt|"
            r"es wäre|es ist|das ist|also(?! be)|daher|somit|"
            r"folglich|deshalb|demnach|deswegen|sondern|es muss|das wäre|bleibt(?: nur)?|damit|"
            r"es handelt sich um|es geht um"
        ),
        perhaps=r"vielleicht|wahrscheinlich|möglicherweise|vermutlich|könnte|eventuell|es könnte|wohl",
        final=r"endgültige?|finale?|abschließende",
        join=r"als auch|wie auch|und/oder|oder|und|bzw\.?|sowie|beziehungsweise|noch",
        because=r"weil|da|denn|aufgrund|wegen|laut|ist|im|in|sein",
        not_=(
            r"(?:ich )?wollte(?: erst| zuerst| schon| fast)?|obwohl|während|nicht|kein\w*|weder|noch|außer|statt|"
            r"anstatt|ob|falls|wenn|ohne|niemals|"
            r"bezweifle|ausschließen|ausgeschlossen|anstelle"
        ),
        denied=(
            r"(?:ist|sind|war|wäre|scheint|kann|passt|stimmt|trifft|wird|fällt|scheidet)? ?(?:auch |"
            r"eindeutig |klar |es |definitiv )?(?:nicht|falsch|inkorrekt|ausgeschlossen|unwahrscheinlich|"
            r"weg\b|aus\b|keine?\b)"
        ),
        fill=(
            r"die|der|das|ist|dass|es|option|antwort|sicher|glaube|sein|wäre|richtig|richtige|ich|denke|um|"
            r"handelt|sich|kann"
        ),
        condition=r"falls |wenn |sofern ",
        case=r"sonst|andernfalls|ansonsten|falls|wenn|sofern",
        right=r"richtig\w*|korrekt\w*",
        survey=r"jede (?:option|antwort|möglichkeit)|einzeln durch|der reihe nach|nacheinander",
        yes=r"ja|wahr|richtig|korrekt|stimmt|zutreffend",
        no=r"nein|falsch|unwahr|inkorrekt|unzutreffend",
        all_=r"alle[sn]?|jede\w?",
        none=r"nichts|keine\w?",
        except_=r"außer|bis auf|mit ausnahme von",
        revision=(
            r"moment|nein,|halt,|doch,|korrektur|ich meine|besser gesagt|eigentlich|ich korrigiere|warte|"
            r"genauer betrachtet"
        ),
        also=r"auch|ebenfalls|ebenso|gleichfalls|genauso",
        possible=r"möglich|passt|passend|stimmt|denkbar|ginge|geht|gültig",
        asks=r"ist|sind|wäre|könnte|kann|sollte|lautet|heißt",
    ),
    "Portuguese": Language(
        answer=(
            r"respostas?|solução|(?:alternativa|opção|letra|escolha) (?:mais \w+|correta|certa|adequada)|"
            r"gabarito|minha escolha|a correta|resp\.?"
        ),
        option=r"opç(?:ão|ões)|opção|letra|alternativa|resposta|item",
        link=r"é|seja|seria|deve ser|são|será|parece ser|só pode ser|tem que ser|pode ser|corresponde à?",
        soft=(
            r"correta|certa|(?-i:[ao])|as|os|opção|letra|alternativa|provavelmente|claramente|certamente|"
            r"com certeza|sem dúvida|é|que é|que|mais provável"
        ),
        choose=(
            r"escolho|escolheria|seleciono|opto por|opto pela|fico com|marco|marcaria|acho que(?: é)?|"
            r"creio que(?: é)?|diria(?: que)?|acredito que(?: é)?|vou de|voto em|vou com"
        ),
        right_after=(
            r"(?:é|está|seria|parece(?: ser)?|são|estão) (?:(?:a|o|as|opção|claramente|mais|resposta|minha|"
            r"alternativa) )*(?:corret[ao]s?|cert[ao]s?|resposta|melhor|verdadeira|escolha|adequada|"
            r"opção(?! in))"
        ),
        therefore=(
            r"por (?:eliminação|exclusão)|é|só (?:resta|sobra)|resta|sobra|seria|portanto|logo|então|assim|por isso|"
            r"mas(?: sim)?|trata-se d[ae]|"
            r"em conclusão|só pode ser|deve ser|sendo assim"
        ),
        perhaps=r"talvez|provavelmente|possivelmente|pode ser|poderia ser|quem sabe",
        final=r"final|definitiva",
        join=r"quanto|como|e/ou|ou|e|nem|ou talvez|bem como",
        because=r"porque|pois|já que|visto que|uma vez|devido|segundo|no|na|é|está|por",
        not_=(
            r"(?:eu )?ia (?:dizer|escolher|responder)|carece de|embora|não|nem|nunca|exceto|se|em vez de|ao invés de|"
            r"(?<!por )descart\w+|(?<!por )elimin\w+|sem|duvido|salvo|"
            r"tampouco"
        ),
        denied=(
            r"não (?:é|são|está|pode|parece|corresponde|aparece)|"
            r"(?:é|são|está|estão|fica|foi)? ?(?:também |claramente )?(?:incorret[ao]s?|errad[ao]s?|"
            r"fals[ao]s?|descartad[ao]s?|eliminad[ao]s?|não\b)"
        ),
        fill=(
            r"é|(?-i:[ao])|opção|acho|que|seja|resposta|letra|por|pela|creio|certeza|tenho|alternativa|"
            r"escolho"
        ),
        condition=r"se ",
        case=r"caso contrário|senão",
        right=r"corret[ao]|cert[ao]",
        survey=r"cada (?:opção|alternativa|uma)|uma a uma|uma por uma",
        yes=r"sim|verdadeir[oa]|corret[oa]|cert[oa]",
        no=r"não|fals[oa]|incorret[oa]|errad[oa]",
        all_=r"tod[oa]s?|tudo",
        none=r"nenhuma?|nada",
        except_=r"exceto|salvo|menos|a não ser",
        revision=r"espera|não,|aliás|ou melhor|desculpe|corrigindo|na verdade|pensando bem|corrijo",
        also=r"também|igualmente",
        possible=r"possíve(?:l|is)|válid[oa]s?|serve|funciona|vale",
        asks=r"será(?: que)?",
    ),
    "Italian": Language(
        answer=(
            r"rispost[ae]|soluzione|"
            r"(?:opzione|alternativa|lettera|scelta) (?:più \w+|corretta|giusta|esatta|migliore)|"
            r"la mia scelta|scelta|quella (?:corretta|giusta)"
        ),
        option=r"(?:l['’])?opzion[ei]|(?:la )?lettera|alternativa|risposta|scelta",
        link=(
            r"è|sia|sarebbe|deve essere|dovrebbe essere|sono|sembra(?: essere)?|sarà|corrisponde (?:a|alla)|"
            r"può essere(?: solo)?|potrebbe essere"
        ),
        soft=(
            r"corretta|giusta|la|il|le|l['’]opzione|lettera|probabilmente|chiaramente|certamente|sicuramente|"
            r"senza dubbio|quindi|è|che sia|che"
        ),
        choose=(
            r"scelgo|sceglierei|seleziono|opto per|opterei per|direi(?: che)?|penso(?: che)?(?: sia)?|"
            r"credo(?: che)?(?: sia)?|ritengo(?: che)?(?: sia)?|voto(?: per)?|vado con|secondo me,? è"
        ),
        right_after=(
            r"(?:è|sarebbe|sembra|sono|pare) (?:(?:la|quella|il|chiaramente|più|le|mia|risposta|"
            r"una) )*(?:corrett[ae]|giust[ae]|esatt[ae]|rispost[ae]|migliore|vera|scelta|adatta)"
        ),
        therefore=(
            r"per (?:esclusione|eliminazione)|sarebbe|è|(?:non )?(?:resta|rimane)(?: solo| che)?|quindi|pertanto|"
            r"dunque|perciò|ma|bensì|"
            r"si tratta (?:di|della)|in conclusione|deve essere|allora"
        ),
        perhaps=r"forse|probabilmente|magari|potrebbe essere|può darsi|può essere",
        final=r"finale|definitiva",
        join=r"che|come|e/o|oppure|o|e|ed|né|o forse|nonché",
        because=r"perch[éè]|poich[éè]|dato|siccome|in quanto|visto|secondo|nel|è|con",
        not_=(
            r"stavo per (?:dire|scegliere|rispondere)|anche se|sebbene|non|né|mai|tranne|eccetto|se|invece di|"
            r"piuttosto che|(?<!per )escl\w+|(?<!per )elimin\w+|"
            r"scart\w+|senza|dubito"
        ),
        denied=(
            r"non (?:è|sono|può|sembra|corrisponde|c['’]è|compare)|"
            r"(?:è|sono|va|vanno)? ?(?:anche |chiaramente )?(?:errat[ao]|sbagliat[ao]|errate|sbagliate|"
            r"fals[ao]|esclus[ao]|esclus[ei]|scartat[ao]|non\b|scorrett[ao])"
        ),
        fill=(
            r"è|la|il|opzione|penso|che|sia|risposta|credo|di|sono|sicuro|sicura|l['’]opzione|scelgo|"
            r"sceglierei"
        ),
        condition=r"se ",
        case=r"altrimenti",
        right=r"corrett[ao]|giust[ao]",
        survey=r"(?:ogni|ciascuna) opzione|una per una",
        yes=r"sì|ver[oa]|corrett[oa]|giust[oa]|esatt[oa]",
        no=r"no|fals[oa]|sbagliat[oa]|errat[oa]|scorrett[oa]",
        all_=r"tutt[eio]",
        none=r"nessuna?|niente|nulla",
        except_=r"tranne|eccetto|salvo|a parte",
        revision=r"aspetta|no,|anzi|cioè|scusa|correggo|ripensandoci|in realtà|mi correggo",
        also=r"anche|altrettanto",
        possible=r"possibil[ei]|valid[oa]|va bene|funziona",
        asks=r"sarà|sarebbe",
    ),
    "Russian": Language(
        answer=(
            r"ответ\w*|решение|(?:правильн|верн|подходящ)\w+(?: (?:вариант\w*|выбор\w*|буква))?|мой выбор|"
            r"выбор|итог"
        ),
        option=r"вариант\w*|опци\w+|букв\w+|пункт\w*|ответ\w*|под буквой",
        link=r"это|является|будет|должен быть|есть|скорее всего|под буквой|значит",
        soft=(
            r"вариант|это|скорее всего|вероятно|очевидно|конечно|буква|именно|однозначно|явно|безусловно|"
            r"ответ|пункт"
        ),
        choose=(
            r"(?:я )?(?:выбираю|выберу|выбрал[аи]?|выбрать|думаю|считаю|полагаю|голосую за|склоняюсь к|"
            r"остановлюсь на|отвечу|за)(?:,? что)?"
        ),
        right_after=(
            r"(?:[—–-]|является|это|тоже|кажется|—\s?это)?\s?(?:самый |наиболее |мой |единственный |"
            r"это )*(?:правильн|верн(?!у)|подходящ|лучш|ответ(?!а)|корректн|вероят|прав)\w*"
        ),
        therefore=(
            r"методом исключения|остаётся(?: только)?|остается(?: только)?|речь ид[её]т о|это|значит|поэтому|"
            r"следовательно|итак|"
            r"таким образом|а|но|получается|стало быть|итого|так что"
        ),
        perhaps=r"скорее|возможно|вероятно|может быть|наверное|скорее всего|пожалуй|кажется",
        final=r"окончательн\w*|итогов\w*|финальн\w*",
        join=r"так и|и/или|или|либо|и|а также|да|ни",
        because=r"потому|так как|поскольку|ведь|из-за|судя|на|в|по|—|является",
        not_=(
            r"(?:хотела?|собирал(?:ся|ась)) (?:был[ао]? )?(?:сказать|выбрать|ответить)|"
            r"хотя|не|ни|нет|кроме|если|исключ(?!ения )\w+|вместо|ли|без|сомнева\w+|отбрасыва\w+|никак|помимо"
        ),
        denied=(
            r"(?:[—–-]|это|тоже|точно|явно|является)?\s?(?:не|неверн\w*|неправильн\w*|ошибочн\w*|исключ\w+|"
            r"отпадает|отпадают|нет)(?!\p{L})"
        ),
        fill=r"что|это|вариант|ответ|думаю|считаю|правильный|верный|уверен|уверена|выбираю|выбрал[аи]?|бы",
        condition=r"если ",
        case=r"если|иначе",
        right=r"правильн\w+|верн\w+",
        survey=r"кажд\w+ (?:вариант\w*|из)|по очереди|по порядку",
        yes=r"да|верно|правда|правильно|истина",
        no=r"нет|неверно|неправда|неправильно|ложь",
        all_=r"вс[её]|любой",
        none=r"ничего|ни один",
        except_=r"кроме|за исключением|помимо",
        revision=r"стоп|нет,|точнее|вернее|погоди\w*|извините|на самом деле|поправка|хотя нет|подождите",
        also=r"тоже|также|и",
        possible=r"возмож\w+|подходит|годится|верн\w+|правильн\w+",
        asks=r"разве|неужели",
    ),
    "Arabic": Language(
        answer=(
            r"\w?(?:ال)?(?:إجابة|اجابة|جواب|حل|إجابتي|جوابي|اختيار|إجابته)(?: (?:ال)?(?:صحيحة?|نهائية?|أنسب|"
            r"أفضل|صواب))*|(?:ال)?خيار (?:ال)?(?:صحيح|أنسب|أفضل)|(?:ال)?صحيح"
        ),
        option=r"(?:ال)?خيار(?:ات)?|(?:ال)?حرف|(?:ال)?اختيار|(?:ال)?إجابة|رمز|(?:ال)?بديل",
        link=r"هي|هو|تكون|يكون|ستكون|كانت?|تبدو|يبدو",
        soft=r"(?:ال)?خيار|(?:ال)?حرف|على الأرجح|بالتأكيد|ربما|بوضوح|غالبًا|هو|هي|أنها|أنه|بلا شك",
        choose=(r"أختار|اخترت|سأختار|أرجح|أعتقد(?: أن(?:ها|ه)?)?|أظن(?: أن(?:ها|ه)?)?|أرى(?: أن(?:ها|ه)?)?|أفضل"),
        right_after=(r"(?:هي|هو|تبدو|يبدو)? ?(?:ال)?(?:إجابة|جواب|صحيحة?|صواب|أنسب|خيار (?:ال)?(?:صحيح|أفضل|أنسب))"),
        therefore=(
            r"يبقى|تبقى|لم يتبق إلا|لذلك|إذن|إذا|بالتالي|ومن ثم|وبالتالي|لذا|بل|إنها|إنه|هو|هي|وعليه|ولذلك|"
            r"فهو|فهي"
        ),
        perhaps=r"ربما|قد تكون|قد يكون|من المحتمل|لعل\w*|يمكن أن (?:تكون|يكون)|على الأرجح",
        final=r"(?:ال)?نهائية?",
        join=r"أو|و|أم|إما|وإما",
        because=r"لأن\w*|حيث|بسبب|نظرا|بناء|وفقا|في|كما|من|إذ|هي|هو",
        not_=r"ليست?|لا|غير|إلا|ما عدا|باستثناء|بدلا من|لم|لن|أستبعد|استبعاد|أشك|خاطئة|هل|إن كان\w*",
        denied=r"(?:هي|هو)? ?(?:ليست?|غير|خاطئة?|خطأ|مستبعدة?|لا)(?!\p{L})",
        fill=r"هي|هو|(?:ال)?خيار|(?:ال)?إجابة|أن|أنها|أنه|من|أعتقد|أختار|(?:ال)?صحيحة?|متأكد\w*|يكون|تكون",
        condition=r"إذا |إن كان |في حال ",
        right=r"(?:ال)?صحيحة?",
        survey=r"كل (?:خيار|إجابة)|واحدا تلو الآخر",
        yes=r"نعم|صحيحة?|صح|صواب",
        no=r"لا|خطأ|خاطئة?|غير صحيحة?",
        all_=r"كل|جميع|الكل",
        except_=r"ما عدا|عدا|باستثناء|إلا|سوى",
        revision=r"لا،|لا,|عفوا|تصحيح|انتظر|في الواقع|بالأحرى|عذرا",
        also=r"أيضا|أيضًا|كذلك",
        possible=r"ممكنة?|محتملة?|صالحة?",
    ),
    "Hindi": Language(
        answer=r"(?:सही |अंतिम |मेरा |सर्वोत्तम |उचित )*(?:उत्तर|जवाब|हल|चुनाव|चयन)|(?:सही|उचित) विकल्प|सही",
        option=r"विकल्प|अक्षर|उत्तर|ऑप्शन",
        option_after=r"विकल्प|वाला विकल्प",
        link=r"है|होगा|यह है|हैं|होना चाहिए|तो",
        soft=r"विकल्प|शायद|संभवतः|निश्चित रूप से|स्पष्ट रूप से|ही|यही|अक्षर|बेशक",
        choose=r"मैं(?= [A-Za-z])|मेरे (?:हिसाब|अनुसार) से?|मुझे लगता है(?: कि)?|मैंने(?= [A-Za-z])",
        right_after=(
            r"(?:ही |सबसे |यहाँ )*(?:सही|उत्तर|जवाब|उचित|उपयुक्त|सटीक|ठीक)(?: (?:उत्तर|विकल्प|"
            r"जवाब))?(?= ?(?:है|हैं|होगा|लगता|रहेगा)(?! न))|"
            r"(?:को )?(?:चुन\w*|चुनूँगा|चुनूंगा|चुनता|चुनती|चुना)|(?:ही )?(?:है|होगा)[।.!]?\s?$"
        ),
        therefore=r"इसलिए|अतः|यह|तो|यानी|इस प्रकार|बल्कि|लेकिन|निष्कर्षतः|अर्थात",
        perhaps=r"शायद|संभवतः|हो सकता है(?: कि)?|संभव है(?: कि)?",
        final=r"अंतिम|आखिरी",
        join=r"या फिर|या|और|तथा|एवं|व|अथवा",
        because=r"क्योंकि|चूंकि|चूँकि|कारण|है|सही|ही|में|हैं",
        not_=r"नहीं|न|अगर|यदि|के अलावा|सिवाय|के बजाय|ना|क्या",
        denied=(r"(?:विकल्प )?(?:सही |उत्तर |ठीक |का |को |भी |बिल्कुल |जवाब |नहीं )*(?:नहीं|गलत|ग़लत|असत्य|न हो)"),
        fill=r"विकल्प|उत्तर|सही|कि|यह",
        condition=r"अगर |यदि |तब ",
        right=r"सही",
        survey=r"प्रत्येक विकल्प|हर विकल्प|एक-एक करके",
        yes=r"सही|हाँ|हां|सत्य|ठीक",
        no=r"गलत|ग़लत|नहीं|असत्य",
        all_=r"सभी|सब|बाकी",
        except_after=r"को छोड़कर|के अलावा|के सिवाय?",
        revision=r"नहीं,|रुकिए|रुको|असल में|दरअसल|माफ़ कीजिए|माफ कीजिए|वास्तव में",
        also=r"भी",
        possible=r"संभव|हो सकता|सही",
    ),
    "Vietnamese": Language(
        answer=(
            r"đáp án|câu trả lời|lựa chọn (?:đúng|của tôi|chính xác|phù hợp)|"
            r"phương án (?:đúng|chính xác|phù hợp)|kết luận|trả lời"
        ),
        option=r"phương án|lựa chọn|đáp án|câu|ý|chữ cái|tùy chọn|chữ",
        link=r"là|sẽ là|phải là|chính là|có lẽ là|nên là|có thể là",
        soft=r"phương án|đáp án|câu|có lẽ|chắc chắn|rõ ràng|là|chính|lựa chọn|ý|đúng|chắc|chính xác|của tôi",
        choose=(
            r"theo (?:tôi|em|mình)(?: (?:thì|đó))?(?: là)?|(?:tôi |em |mình )?(?:xin |sẽ )?(?:chọn|"
            r"nghĩ(?: rằng)?(?: đó)?(?: là)?|cho rằng(?: đó)?(?: là)?|đoán(?: là)?|tin(?: rằng)?(?: là)?)"
        ),
        right_after=(
            r"(?:chính )?(?:là|mới là|có vẻ)? ?(?:đáp án|câu trả lời|phương án|lựa chọn|đúng|chính xác|"
            r"phù hợp|hợp lý)(?! (?:sai|không))"
        ),
        therefore=(
            r"chỉ còn(?: lại)?|còn lại|vậy(?: thì| nên)?|do đó|vì vậy|nên|suy ra|đó là|mà là|như vậy|vì thế|"
            r"tóm lại|thì là"
        ),
        perhaps=r"có lẽ|có thể(?: là)?|chắc là|hình như|có khả năng",
        final=r"cuối cùng",
        join=r"hoặc là|hoặc|hay|và|cùng với|lẫn",
        because=r"vì|bởi|do|theo|dựa|trong|cho|thể hiện",
        not_=r"mặc dù|không(?: phải)?|chẳng|nếu|ngoại trừ|trừ|loại|đừng|chưa|thay vì|liệu|chứ không phải",
        denied=r"(?:thì |đều |cũng |bị |là |rõ ràng )*(?:không|sai|chưa|loại)",
        fill=r"là|phải|chọn|đáp án|phương án|đúng|câu|tôi|nghĩ|chắc|rằng",
        condition=r"nếu ",
        right=r"đúng",
        survey=r"từng (?:phương án|đáp án|lựa chọn)|lần lượt",
        yes=r"đúng|có|chính xác",
        no=r"sai|không|không đúng",
        all_=r"tất cả|mọi|các",
        except_=r"trừ|ngoại trừ|ngoài",
        revision=r"khoan|à không|không,|thực ra|xin lỗi|nhầm|đính chính",
        also=r"cũng",
        possible=r"có thể|được|hợp lý",
        asked=r"(?:phải |đúng )?không",
    ),
    "Turkish": Language(
        answer=(
            r"(?:doğru |nihai |kesin )?(?:cevap|cevabım|yanıt|yanıtım|cevabı|yanıtı)|doğru (?:seçenek|şık)|"
            r"seçimim|sonuç|doğrusu"
        ),
        option=r"seçenek|şık|cevap",
        option_after=r"seçeneği|şıkkı|seçeneğidir|şıkkıdır",
        link=r"olarak|ise|şudur|olmalı",
        soft=r"büyük ihtimalle|muhtemelen|kesinlikle|açıkça|seçenek|bence",
        choose=r"bence|bana göre|benim seçimim|sanırım",
        right_after=(
            r"(?:['’]?\s?(?:seçeneği|şıkkı|seçeneğini|şıkkını)?['’]?(?:y?[ıi]|"
            r"n[ıi])?) ?(?:en )?(?:doğru(?:dur)?(?! değil)|seçiyorum|seçerim|seçeceğim|olmalı|işaretl\w+|"
            r"uygun\w*|cevaptır|yanıttır)|['’](?:d[iı]r|t[iı]r|y[ıi]|[ıi])(?! değil)"
        ),
        therefore=r"yani|dolayısıyla|bu yüzden|bu nedenle|o halde|öyleyse|demek ki|aksine",
        perhaps=r"belki|muhtemelen|galiba|herhalde",
        final=r"nihai|son|kesin",
        join=r"hem de|hem|veya|ya da|ve|yahut|ile",
        because=r"çünkü|zira|olduğu|nedeniyle|seçeneği|göre|doğru|olmalı",
        not_=r"eğer|hariç|dışında|yerine|ne",
        denied=(
            r"(?:['’]?\s?(?:seçeneği|şıkkı)?) ?(?:de |da |doğru |kesinlikle |cevap )*(?:değil\w*|yanlış\w*|"
            r"olamaz|elenir|hatalı)"
        ),
        condition=r"ise ",
        survey=r"her (?:seçeneği|şıkkı)|tek tek|sırayla",
        yes=r"doğru|evet",
        no=r"yanlış|hayır|doğru değil",
        all_=r"hepsi|tümü|tüm|bütün|her şey|diğer\p{L}*",
        except_after=r"(?:seçeneği |şıkkı )?(?:dışında(?:ki)?|hariç)",
        revision=r"hayır,|pardon|dur,|daha doğrusu|aslında|düzeltiyorum",
        also=r"ayrıca",
        possible=r"olabilir|mümkün|doğru\w*|uygun",
        asked=r"m[ıi](?:d[ıi]r|y?d[ıi])?",
    ),
    "Dutch": Language(
        answer=r"antwoord|oplossing|(?:juiste|beste|correcte) (?:optie|keuze|antwoord)|mijn keuze|keuze",
        option=r"optie|antwoord|letter|keuze",
        link=r"is|zou|moet|luidt|lijkt|zijn",
        soft=r"de|het|waarschijnlijk|duidelijk|dus|zeker|vermoedelijk|zijn|optie|antwoord",
        choose=(
            r"ik (?:kies|denk|ga voor|zou|neem|geloof)(?: voor| dat het(?: antwoord)?)?|kies|"
            r"volgens mij(?: is het)?|lijkt me"
        ),
        right_after=(
            r"(?:juist|correct|goed) is|"
            r"(?:is|lijkt|klopt)(?: (?:me|mij|het|de|duidelijk|dus|mijn|meest))*(?: (?:juist\w*|correct\w*|goed\w*|"
            r"antwoord|beste?|keuze|waarschijnlijk\w*|aannemelijk\w*|logisch\w*))(?! niet)|klopt(?! niet)"
        ),
        therefore=r"het (?:is|moet|lijkt|zou)|dus|daarom|daardoor|maar|kortom",
        perhaps=r"misschien|waarschijnlijk|mogelijk|wellicht|het zou",
        final=r"definitieve?|uiteindelijke",
        join=r"en/of|of|en|noch",
        because=r"omdat|want|aangezien|doordat|volgens|in|zijn|te zijn",
        not_=r"hoewel|niet|geen|behalve|als|tenzij|in plaats van|zonder|nooit",
        denied=r"(?:is|zijn|klopt|kan|lijkt)? ?(?:ook |duidelijk )?(?:niet|onjuist|fout|verkeerd|incorrect)",
        fill=r"het|de|is|dat|optie|denk|antwoord|zeker",
        condition=r"als |indien ",
        right=r"juiste?|correcte?",
        yes=r"ja|waar|juist|goed|correct",
        no=r"nee|onwaar|onjuist|fout|niet waar|niet juist",
        all_=r"alle[sn]?|elke?",
        none=r"niets|geen(?: enkele)?",
        except_=r"behalve|uitgezonderd",
        revision=r"wacht|nee,|eigenlijk|correctie|sorry",
        also=r"ook|eveneens",
        possible=r"mogelijk|kan|klopt|past",
        asks=r"is|zijn|zou|kan",
    ),
    "Polish": Language(
        answer=(
            r"odpowied[źz]i?(?:ą)?|rozwiązanie|(?:poprawna|prawidłowa|właściwa) (?:opcja|odpowiedź)|"
            r"mój wybór|poprawn\w+|prawidłow\w+|najbardziej prawdopodobn\w+"
        ),
        option=r"opcj\w+|odpowied\w+|liter\w+|wariant",
        link=r"to|jest|brzmi|powinna być|będzie|musi być",
        soft=r"prawdopodobnie|oczywiście|zdecydowanie|chyba|na pewno|opcja|to|więc|jest|odpowiedź",
        choose=(
            r"moim zdaniem(?: to)?|wybieram|wybrałbym|wybrałabym|stawiam na|zaznaczam|myślę,? że(?: to)?|"
            r"sądzę,? że(?: to)?|uważam,? że(?: to)?"
        ),
        right_after=(
            r"(?:jest|to|wydaje się|są)(?: (?:najbardziej|najlepsz\w+|chyba))*(?: (?:poprawn\w+|prawidłow\w+|"
            r"właściw\w+|odpowied\w+|najlepsz\w+))"
        ),
        therefore=(
            r"(?<=(?:^|[.,!?\n])\s?)to|(?:to )?musi (?:to )?być|chodzi o|zostaje|pozostaje|zdaniem to|więc|zatem|"
            r"dlatego|czyli|lecz|ale|a więc"
        ),
        perhaps=r"może|być może|prawdopodobnie|chyba",
        final=r"ostateczn\w+|końcow\w+",
        join=r"jak i|oraz też|lub|albo|i|oraz|czy|ani",
        because=r"ponieważ|bo|gdyż|bowiem|na|w|według|jest",
        not_=r"chociaż|choć|nie|ani|oprócz|jeśli|zamiast|czy|bez|wykluczam|nigdy",
        denied=r"(?:jest|są|to|też)? ?(?:nie|błędn\w+|niepoprawn\w+|nieprawidłow\w+|odpada)(?!\p{L})",
        fill=r"jest|to|że|opcja|odpowiedź|myślę|sądzę|wybieram",
        condition=r"jeśli |jeżeli |gdy ",
        right=r"poprawn\w+|prawidłow\w+",
        yes=r"tak|prawda|poprawn[aey]|prawidłow[aey]|dobrze",
        no=r"nie|fałsz|nieprawda|niepoprawn[aey]|nieprawidłow[aey]|źle|błędn[aey]",
        all_=r"wszystk\p{L}+|każd\p{L}+",
        none=r"nic|żadn\p{L}+",
        except_=r"oprócz|poza|prócz|z wyjątkiem",
        revision=r"czekaj|nie,|właściwie|przepraszam|poprawka|jednak",
        also=r"też|także|również",
        possible=r"możliw\w+|pasuje",
        asks=r"czy",
    ),
    "Indonesian": Language(
        answer=(
            r"jawaban(?:nya|ku)?|solusi|(?:pilihan|opsi)(?:nya)? yang (?:benar|tepat|paling \w+)|"
            r"pilihan saya|kesimpulan(?:nya)?|jawapan(?:nya)?"
        ),
        option=r"opsi|pilihan|huruf|jawaban",
        link=r"adalah|ialah|yaitu|yakni|seharusnya|sepertinya|mungkin",
        soft=r"opsi|pilihan|huruf|kemungkinan besar|jelas|tentu|pasti|yang|mungkin|adalah|benar|tepat",
        choose=(
            r"(?:saya |aku )?(?:memilih|pilih|akan memilih|rasa|pikir|kira|yakin)(?: jawabannya)?(?: adalah)?|"
            r"menurut saya"
        ),
        right_after=(
            r"(?:adalah|yang|merupakan|paling|jelas|tampaknya) ?(?:paling |jawaban |pilihan |yang )*(?:benar|"
            r"tepat|jawaban|sesuai|cocok|pilihan)|benar(?!-)"
        ),
        therefore=r"jadi|maka|oleh karena itu|dengan demikian|melainkan|tetapi|karena itu|sehingga",
        perhaps=r"mungkin|barangkali|kemungkinan|bisa jadi",
        final=r"akhir|terakhir|final",
        join=r"atau|dan|maupun|serta",
        because=r"karena|sebab|berdasarkan|menurut|sesuai|di|yang|adalah",
        not_=r"meskipun|bukan(?:lah)?|tidak|kecuali|jika|kalau|selain|tanpa|apakah|daripada|belum",
        denied=r"(?:adalah |itu |juga |jelas |jawaban yang )*(?:bukan|tidak|salah|keliru|kurang tepat)",
        fill=r"adalah|yang|opsi|pilihan|jawaban|benar|saya|memilih|pikir|yakin|bahwa",
        condition=r"jika |kalau |bila ",
        right=r"benar|tepat",
        yes=r"benar|ya|betul|tepat",
        no=r"salah|tidak|bukan|tidak benar",
        all_=r"semua(?:nya)?|seluruh",
        except_=r"kecuali|selain",
        revision=r"tunggu|bukan,|eh,|maaf|sebenarnya|ralat|maksud saya",
        also=r"juga",
        possible=r"mungkin|bisa|cocok",
        asks=r"apakah",
    ),
    "Thai": Language(
        answer=(r"คำตอบ(?:ที่ถูกต้อง|ที่ถูก|สุดท้าย|ของฉัน)?|ข้อที่ถูก(?:ต้อง)?|ตัวเลือกที่ถูก(?:ต้อง)?|เฉลย|ตอบ"),
        option=r"ตัวเลือก|ข้อ|คำตอบ",
        link=r"คือ|น่าจะเป็น|เป็น|ได้แก่",
        soft=r"ข้อ|ตัวเลือก|น่าจะ|คือ|แน่นอน",
        choose=r"เลือก|ขอเลือก|ฉันคิดว่า(?:เป็น)?|คิดว่า(?:คือ|เป็น)?",
        right_after=r"(?:คือ|เป็น)?(?:คำตอบ(?:ที่ถูก)?|ถูกต้อง|ถูก|ตรงที่สุด|เหมาะสม)(?!ตัด)",
        therefore=r"ดังนั้น|เพราะฉะนั้น|จึงเป็น|แต่เป็น|สรุป",
        perhaps=r"อาจจะ(?:เป็น)?|อาจเป็น|น่าจะเป็น",
        final=r"สุดท้าย",
        join=r"หรือ|และ|กับ",
        because=r"เพราะ|เนื่องจาก|โดย|ใน|ที่|ครับ|ค่ะ",
        not_=r"ไม่(?:ใช่)?|ถ้า|ยกเว้น|หาก",
        denied=r"(?:ก็|นั้น)?(?:ไม่|ผิด)",
        fill=r"ข้อ|คือ|เป็น|ตัวเลือก",
        condition=r"ถ้า|หาก",
        yes=r"ถูกต้อง|ถูก|ใช่|จริง",
        no=r"ผิด|ไม่ถูกต้อง|ไม่ถูก|ไม่ใช่|เท็จ",
        all_=r"ทั้งหมด|ทุก",
        except_=r"ยกเว้น|นอกจาก",
        revision=r"เดี๋ยว|ไม่สิ|ขอแก้",
        also=r"ก็",
        possible=r"ได้|เป็นไปได้|ถูก",
        asked=r"ไหม|หรือเปล่า|ใช่ไหม",
        spaced=False,
    ),
    "Ukrainian": Language(
        answer=r"відповідь|відповіддю|(?:правильн|вірн)\w+(?: (?:варіант\w*|відповідь))?|мій вибір",
        option=r"варіант\w*|літер\w+|відповідь|пункт",
        link=r"це|є|буде|має бути",
        soft=r"варіант|це|ймовірно|скоріш за все|мабуть|очевидно",
        choose=r"(?:я )?(?:обираю|вибираю|думаю|вважаю|оберу)(?:,? що)?(?: це)?",
        right_after=r"(?:[—–-]|є|це)\s?(?:це )?(?:правильн|вірн|відповідь|найкращ)\w*",
        therefore=r"це|отже|тому|таким чином|а|тобто",
        perhaps=r"можливо|ймовірно|мабуть|напевно",
        final=r"остаточн\w*|кінцев\w*",
        join=r"або|чи|і|та|й",
        because=r"бо|тому що|оскільки|адже|на|у|в",
        not_=r"не|ні|крім|якщо|чи|без",
        denied=r"(?:[—–-]|це|є)?\s?(?:не|неправильн\w*|невірн\w*)(?!\p{L})",
        fill=r"що|це|варіант|відповідь|думаю",
        condition=r"якщо ",
        yes=r"так|правильно|вірно|правда",
        no=r"ні|неправильно|невірно|неправда|хибно",
        all_=r"всі|усі|все",
        except_=r"крім|окрім",
        revision=r"стоп|ні,|точніше|насправді",
        also=r"також|теж",
        possible=r"можлив\w+|підходить",
        asks=r"чи|хіба",
    ),
    "Swedish": Language(
        answer=(
            r"(?:mitt |rätta? |korrekta? |slutgiltiga? )*(?:svaret|svar)|"
            r"(?:rätt|rätta|korrekta?|bästa|mest \w+) (?:alternativ\w*|val\w*)|slutsatsen|lösningen"
        ),
        option=r"(?:svars)?alternativ(?:et)?|bokstav(?:en)?|svar(?:et)?|val(?:et)?",
        link=r"är|blir|måste vara|bör vara|borde vara|lyder|verkar vara|torde vara",
        soft=r"alternativ(?:et)?|troligen|troligtvis|förmodligen|sannolikt|nog|alltså|tydligt|säkert|svaret|det|är",
        choose=(
            r"(?:jag )?(?:väljer|skulle välja|skulle säga|tror|gissar(?: på)?|anser|menar)(?:,? att)?"
            r"(?: (?:det|svaret) är)?|min gissning är"
        ),
        right_after=(
            r"(?:är|verkar|måste vara|borde vara|känns|tycks vara)(?: (?:det|den|mest|helt|mitt|nog))*"
            r" (?:rätta?|korrekta?|riktigt?|sant|bäst|bästa|svaret|troliga?|sannolika?|rimliga?)|"
            r"(?:stämmer|passar)(?: bäst)?(?! inte)"
        ),
        therefore=r"det (?:är|måste vara|blir|borde vara)|alltså|därför|således|utan|återstår|därmed",
        perhaps=r"kanske|troligen|troligtvis|förmodligen|möjligen|det kan vara|sannolikt",
        final=r"slutgiltiga?|slutligt|slutliga",
        join=r"eller|och|samt|respektive",
        because=r"eftersom|för att|därför att|då|enligt|på grund av",
        not_=r"inte|ej|varken|om|förutom|utom|i stället för|istället för|utesluter|aldrig|inget|ingen",
        denied=(
            r"(?:är|verkar|kan|stämmer|passar)? ?(?:också |tydligt |helt |det )*(?:inte|ej|fel|felaktigt?|falskt?|"
            r"uteslutet)(?!\p{L})"
        ),
        fill=r"är|det|den|att|alternativ(?:et)?|rätt|svaret|tror|säker|på|jag|både",
        condition=r"om ",
        case=r"om det|annars",
        right=r"rätta?|korrekta?",
        survey=r"varje alternativ|ett i taget",
        yes=r"ja|sant|rätt|riktigt|korrekt",
        no=r"nej|falskt?|fel|felaktigt?|inte rätt",
        all_=r"all[at]|samtliga",
        none=r"inget|ingen",
        except_=r"utom|förutom",
        revision=r"vänta|nej,|förlåt|rättelse|egentligen|jag menar",
        also=r"också|även|likaså",
        possible=r"möjligt?|fungerar|passar",
        asks=r"är|kan|skulle|borde",
    ),
    "Danish and Norwegian": Language(
        answer=(
            r"(?:mit |mitt |det |rigtige?|riktige? |korrekte? |endelige? |endelig )*(?:svaret|svar)|"
            r"(?:rigtige?|riktige?|korrekte?|rette|bedste|beste) (?:svaret|svar|svarmulighed|mulighed\w*|"
            r"alternativ\w*|valg\w*)|løsningen|konklusjonen|konklusionen"
        ),
        option=(
            r"(?:svar)?mulighed(?:en)?|(?:svar)?alternativ(?:et)?|bogstav(?:et)?|bokstav(?:en)?|svar(?:et)?|"
            r"valg(?:et)?"
        ),
        link=r"er|må være|bør være|lyder|blir|bliver|ser ud til at være|ser ut til å være",
        soft=(
            r"mulighed(?:en)?|alternativ(?:et)?|sandsynligvis|sannsynligvis|trolig|nok|altså|tydeligvis|svaret|"
            r"det|er|formentlig"
        ),
        choose=(
            r"(?:jeg )?(?:vælger|velger|vil sige|vil si|ville sige|ville si|ville velge|ville vælge|tror|gætter på|"
            r"gjetter på|mener)(?:,? (?:at|det))*(?: (?:det|svaret))?(?: er)?"
        ),
        right_after=(
            r"(?:er|virker|må være|synes|ser ud til at være)(?: (?:det|den|mest|helt|mitt|mit|nok))*"
            r" (?:rigtige?t?|riktige?|rett|korrekte?|sandt?|sant|bedst|best|svaret|svar|sandsynlige?|sannsynlige?)|"
            r"(?:stemmer|passer)(?: bedst| best)?(?! ikke)"
        ),
        therefore=r"det (?:er|må være|blir|bliver)|altså|derfor|således|dermed|men",
        perhaps=r"måske|kanskje|sandsynligvis|sannsynligvis|muligvis|muligens|trolig|det kan være",
        final=r"endelige?|endelig",
        join=r"eller|og|samt",
        because=r"fordi|siden|da|ettersom|ifølge|på grund af|på grunn av",
        not_=(
            r"ikke|hverken|verken|hvis|dersom|undtagen|unntatt|bortset fra|bortsett fra|i stedet for|udelukker|"
            r"utelukker|aldri|aldrig|ingen|intet"
        ),
        denied=(
            r"(?:er|virker|kan|stemmer|passer)? ?(?:også |tydeligvis |helt |det )*(?:ikke|forkerte?|feil|galt?|"
            r"usand|usant|falsk|udelukket|utelukket)(?!\p{L})"
        ),
        fill=r"er|det|den|at|mulighed(?:en)?|alternativ(?:et)?|rigtige?|riktige?|svaret|tror|sikker|på|jeg|både",
        condition=r"hvis |dersom ",
        case=r"hvis det|ellers",
        right=r"rigtige?|riktige?|korrekte?",
        survey=r"hver mulighed|hvert alternativ|en ad gangen|én etter én",
        yes=r"ja|sandt?|sant|rigtigt?|riktig|korrekt",
        no=r"nej|nei|falskt?|forkert|feil|galt?|usandt?",
        all_=r"alle|alt",
        none=r"intet|ingen|ingenting",
        except_=r"undtagen|unntatt|bortset fra|bortsett fra|på nær",
        revision=r"vent(?=[,.!])|nei,|nej,|undskyld|beklager|rettelse|faktisk|jeg mener",
        also=r"også|ligeledes|likeså",
        possible=r"muligt?|mulig|fungerer|passer",
        asks=r"er|kan|skulle",
    ),
    "Finnish": Language(
        answer=(
            r"(?:oikea |lopullinen |oikein )*vastau(?:s|kseni|ksesi)(?: on)?|(?:oikea|paras) (?:vaihtoehto|"
            r"valinta)(?: on)?"
        ),
        option=r"vaihtoehto|kirjain|vastaus|valinta",
        link=r"lienee|täytyy olla",
        soft=r"vaihtoehto|todennäköisesti|luultavasti|selvästi|siis|varmasti|se on",
        choose=(
            r"valitsen|valitsisin|(?:luulen|uskon|arvelen|sanoisin)(?:,? että)?(?: se on| vastaus on)?|"
            r"mielestäni(?: se on)?"
        ),
        right_after=(
            r"(?:on|lienee|vaikuttaa|tuntuu)(?: (?:se|siis|selvästi|kaikkein|minun))* (?:oikein|oike\p{L}+|paras|"
            r"totta|vastaus|todennäköisi\p{L}+|sopivin)|pitää paikkansa"
        ),
        therefore=r"se on|se täytyy olla|siis|joten|näin ollen|siksi|vaan",
        perhaps=r"ehkä|luultavasti|todennäköisesti|mahdollisesti|kenties",
        final=r"lopullinen",
        join=r"tai|ja|että|sekä",
        because=r"koska|sillä|joten|on",
        not_=r"ei|eivät|eikä|jos|paitsi|sen sijaan|en usko",
        denied=r"(?:ei|eivät)(?!\p{L})|(?:on|ovat) (?:myös )?(?:väärin|väärä\p{L}*|virheellinen)",
        fill=r"ole|se|että|vaihtoehto|oikea|vastaus|sekä",
        condition=r"jos ",
        case=r"muuten",
        right=r"oikea|oikein",
        yes=r"kyllä|oikein|totta|tosi",
        no=r"väärin|epätosi|ei",
        all_=r"kaikki",
        except_=r"paitsi",
        revision=r"odota|anteeksi|korjaus|tai siis",
        also=r"myös",
        possible=r"mahdolli\p{L}+|sopii|käy",
        asks=r"onko|voisiko|olisiko",
    ),
    "Czech and Slovak": Language(
        answer=(
            r"(?:správn\p{L}+ |moje |konečn\p{L}+ )*(?:odpověď|odpovědí|odpoveď)|správn\p{L}+(?: (?:možnost|možnosť|"
            r"varianta|volba|voľba))?|nejlepší (?:možnost|odpověď)|řešení|riešenie"
        ),
        option=r"možnos[tť]|variant[au]?|písmeno|odpověď|odpoveď|volba|voľba",
        link=r"je|bude|zní|musí být|by měla být|musí byť",
        soft=r"možnos[tť]|varianta|pravděpodobně|pravdepodobne|zřejmě|asi|tedy|jasně|určitě|je|to",
        choose=(
            r"vyb[íie]r[áa]m|volím|zvolil\p{L}? bych|vybral\p{L}? bych|zvolím|tipuji|řekl\p{L}? bych|(?:myslím|"
            r"domnívám se|soudím|věřím|verím)(?: si)?(?:,? že)?(?: je)?(?: to)?(?: je)?|podle m[eě](?: je to)?"
        ),
        right_after=(
            r"(?:je|se zdá|se jeví|musí být|sa zdá)(?: (?:ta|to|nejvíce|být|ako|jako|moje))* (?:správn\p{L}+|"
            r"odpově\p{L}+|pravdiv\p{L}+|nejlepší|nejpravděpodobnější|pravda)"
        ),
        therefore=r"je to|to je|musí to být|takže|tedy|proto|teda|preto|nýbrž|zbývá",
        perhaps=r"možná|asi|pravděpodobně|pravdepodobne|snad|může to být",
        final=r"konečn\p{L}+|finální",
        join=r"nebo|alebo|(?-i:a(?= [A-Z](?!\p{L})))|či|i|ani",
        because=r"protože|neboť|jelikož|pretože|lebo|podle|na|v",
        not_=r"ne|není|nie|ani|kromě|okrem|pokud|jestli|ak|místo|namiesto|vylučuji|nejsem si jist\p{L}*",
        denied=(
            r"(?:je|jsou|to|sú)? ?(?:také |zjevně )?(?:ne|není|nie|nesprávn\p{L}+|špatn\p{L}+|chybn\p{L}+|"
            r"vyloučen\p{L}+|nejsou)(?!\p{L})"
        ),
        fill=r"je|to|že|možnos[tť]|správn\p{L}+|odpověď|odpoveď",
        condition=r"pokud |jestli |ak |když ",
        case=r"jinak|inak",
        right=r"správn\p{L}+",
        yes=r"ano|áno|pravda|správně|správne|správn[áéý]",
        no=r"ne|nie|nepravda|špatně|nesprávne|nesprávn[áéýě]|chybn[áéýě]",
        all_=r"všechn\p{L}+|všetk\p{L}+|vše|všetko",
        except_=r"kromě|okrem|až na|mimo",
        revision=r"počkat|počkej|ne,|nie,|vlastně|oprava|pardon|omlouvám se",
        also=r"také|taky|tiež|též|rovněž",
        possible=r"možn\p{L}+|pasuje|vyhovuje",
        asks=r"je|bude|není",
    ),
    "Greek": Language(
        answer=(
            r"(?:σωστή |τελική |ορθή )*(?:απάντηση|απάντησή|απάντησης)(?: μου)?|(?:σωστή|σωστό|ορθή|καλύτερη)"
            r"(?: (?:επιλογή|λύση))?|επιλογή μου|λύση"
        ),
        option=r"επιλογή|γράμμα|απάντηση|περίπτωση",
        link=r"είναι|θα είναι|πρέπει να είναι|φαίνεται να είναι|μάλλον είναι",
        soft=r"μάλλον|πιθανώς|πιθανότατα|προφανώς|σίγουρα|επιλογή|είναι|η|το|ο|την|τη",
        choose=(
            r"επιλέγω|διαλέγω|θα (?:διάλεγα|επέλεγα|έλεγα)|(?:νομίζω|πιστεύω|θεωρώ|υποθέτω)(?: (?:ότι|πως))?"
            r"(?: η απάντηση)?(?: είναι)?"
        ),
        right_after=(
            r"(?:είναι|φαίνεται|μοιάζει|πρέπει να είναι)(?: (?:η|το|πιο|ξεκάθαρα|μάλλον|μου))* (?:σωστ\p{L}+|"
            r"ορθ\p{L}+|απάντηση|αληθ\p{L}+|καλύτερ\p{L}+|πιθαν\p{L}+)"
        ),
        therefore=r"είναι|πρέπει να είναι|άρα|επομένως|οπότε|συνεπώς|αλλά|μένει",
        perhaps=r"ίσως|μάλλον|πιθανώς|πιθανόν|μπορεί να είναι",
        final=r"τελική|οριστική",
        join=r"ή|και|είτε|ούτε",
        because=r"επειδή|γιατί|διότι|αφού|καθώς|λόγω|είναι",
        not_=r"δεν|όχι|ούτε|μη|εκτός|εκτός από|αν|εάν|αντί|αποκλείω|χωρίς",
        denied=r"(?:είναι)? ?(?:επίσης )?(?:δεν|όχι|λάθος|λανθασμέν\p{L}+|εσφαλμέν\p{L}+|ψευδ\p{L}+)(?!\p{L})",
        fill=r"είναι|η|το|ότι|επιλογή|σωστή|απάντηση",
        condition=r"αν |εάν ",
        right=r"σωστ\p{L}+|ορθ\p{L}+",
        yes=r"ναι|σωστ[όή]|αληθ[έή]ς|αλήθεια",
        no=r"όχι|λάθος|ψευδ[έή]ς|λανθασμέν[οη]",
        all_=r"όλ[αες]\p{L}*|όλες",
        except_=r"εκτός(?: από)?|πλην",
        revision=r"περίμενε|όχι,|συγγνώμη|διόρθωση|μάλλον όχι|στην πραγματικότητα",
        also=r"επίσης|και",
        possible=r"δυνατ\p{L}+|πιθαν\p{L}+|ισχύει|ταιριάζει",
        asks=r"μήπως|άραγε|είναι",
    ),
    "Hebrew": Language(
        answer=r"ה?תשובה(?: ה?(?:נכונה|סופית|שלי|טובה ביותר))*|ה?אפשרות הנכונה|ה?בחירה שלי|ה?פתרון|הנכונה",
        option=r"ה?אפשרות|ה?אות|ה?תשובה|סעיף|ה?בחירה",
        link=r"היא|הוא|זה|זו|תהיה|חייבת להיות|צריכה להיות",
        soft=r"כנראה|בוודאי|בבירור|אפשרות|כנראה ש\p{Hebrew}+|היא|סעיף",
        choose=(
            r"(?:אני )?(?:בוחרת?|אבחר|בחרתי)(?: ב)?|(?:אני )?(?:חושבת?|מאמינה?|סבורה?|מניחה?) ש(?:זה|זו|"
            r"התשובה היא)|לדעתי(?: זה)?"
        ),
        right_after=(
            r"(?:היא|הוא|זו|נראית|נראה)? ?(?:ה?כי |ביותר )?(?:ה?נכו(?:ן|נה)|ה?תשובה(?: הנכונה)?|ה?מתאימה?|"
            r"ה?סבירה?)(?!\p{L})"
        ),
        therefore=r"זה|זו|זאת|לכן|ולכן|אז|אלא|נשאר(?:ת)? רק|על כן|מכאן",
        perhaps=r"אולי|כנראה|ייתכן ש\p{Hebrew}+|יכול להיות ש\p{Hebrew}+",
        final=r"ה?סופית",
        join=r"או|גם|וגם|ו",
        because=r"כי|משום|מפני|מכיוון|בגלל|לפי|היא|נכו(?:ן|נה)",
        not_=r"לא|אינה|אינו|אין|איננה|אם|חוץ מ|מלבד|למעט|במקום|האם|ולא",
        denied=r"(?:היא|הוא)? ?(?:גם )?(?:לא|אינה|אינו|איננה|שגויה?|ה?שגויה?|טעות|פסולה?)(?!\p{L})",
        fill=r"היא|הוא|זה|נכון|התשובה|אפשרות|בחרתי|ב",
        condition=r"אם ",
        right=r"נכו(?:ן|נה)",
        yes=r"כן|נכו(?:ן|נה)|אמת",
        no=r"לא(?: נכו(?:ן|נה))?|שגויה?|טעות|שקר",
        all_=r"הכל|כולם|כולן|כל|כל האפשרויות",
        except_=r"חוץ מ|מלבד|למעט|פרט ל",
        revision=r"רגע|בעצם|לא,|סליחה|תיקון",
        also=r"גם|וגם",
        possible=r"אפשרית?|ייתכן|מתאימה?",
        asks=r"האם",
    ),
    "Persian": Language(
        answer=r"(?:پاسخ|جواب)(?: (?:صحیح|درست|نهایی|من))*|(?:گزینه|گزینهٔ|گزینه‌ی|گزینه ی) (?:صحیح|درست)",
        option=r"گزینه(?:ٔ|‌ی| ی)?|حرف|پاسخ|جواب",
        link=r"عبارت است از|برابر است با|می ?باشد|همان",
        soft=r"احتمالا|احتمالاً|قطعا|قطعاً|گزینه(?:ٔ|‌ی| ی)?|حتما",
        choose=(
            r"(?:فکر|گمان) می ?کنم(?: که)?(?: (?:پاسخ|جواب))?|به نظر(?: من|م| می ?رسد(?: که)?)|من(?= [A-Za-z])|"
            r"انتخاب من"
        ),
        right_after=(
            r"(?:گزینه )?(?:صحیح|درست|پاسخ|جواب|بهترین)(?: (?:صحیح|درست|گزینه|پاسخ))* ?(?=است|می ?باشد)|"
            r"(?:را )?(?:انتخاب می ?کنم|برمی ?گزینم)"
        ),
        therefore=r"بنابراین|پس|در نتیجه|بلکه|یعنی",
        perhaps=r"شاید|احتمالا|احتمالاً|ممکن است",
        final=r"نهایی",
        join=r"یا|و|هم",
        because=r"زیرا|چون|چرا|است|را|به دلیل|صحیح|درست|می ?باشد",
        not_=r"اگر|به جز|جز|بجز|به جای|نه|آیا",
        denied=(
            r"(?:هم |صحیح |درست |پاسخ |گزینه |جواب )*(?:نیست|نیستند|غلط|نادرست|اشتباه|نمی ?باشد)|"
            r"(?:را )?(?:انتخاب )?نمی ?کنم"
        ),
        fill=r"گزینه",
        condition=r"اگر ",
        right=r"صحیح|درست",
        yes=r"بله|درست|صحیح",
        no=r"خیر|نه|غلط|نادرست|اشتباه",
        all_=r"همه|تمام|بقیه",
        except_=r"به جز|بجز|جز|غیر از",
        revision=r"نه،|نه,|ببخشید|صبر کن|در واقع|اصلاح",
        also=r"هم|نیز|همچنین",
        possible=r"ممکن|محتمل|قابل قبول",
        asks=r"آیا",
    ),
    "Romanian": Language(
        answer=(
            r"(?:r[ăa]spuns|r[ăa]spunsul)(?: (?:meu|corect|final|potrivit))*|(?:varianta|opțiunea|alegerea|"
            r"litera) (?:corectă|potrivită|bună)|soluția"
        ),
        option=r"variant[ae]|opțiun(?:ea|e)|liter[ae]|r[ăa]spuns(?:ul)?",
        link=r"este|ar fi|trebuie să fie|pare(?: a fi)?",
        soft=r"probabil|cel mai probabil|clar|evident|sigur|varianta|opțiunea|litera|este|desigur",
        choose=(
            r"aleg|aș alege|optez pentru|selectez|(?:cred|consider|presupun)(?: că)?(?: (?:este|răspunsul este))?|"
            r"aș spune(?: că este)?"
        ),
        right_after=(
            r"(?:este|ar fi|pare(?: a fi)?|sunt)(?: (?:cel|cea|mai|clar|răspunsul|varianta))* (?:corect[ăe]?|"
            r"adevărat[ăe]?|potrivit[ăe]?|bun[ăe]?|răspunsul|probabil[ăe]?)"
        ),
        therefore=r"este|deci|prin urmare|așadar|astfel|ci|rămâne|trebuie să fie",
        perhaps=r"poate|probabil|posibil|ar putea fi",
        final=r"final",
        join=r"sau|și|ori|fie|cât și|nici",
        because=r"pentru că|deoarece|fiindcă|întrucât|este|conform",
        not_=r"nu|nici|dacă|except[âa]nd|cu excepția|în loc de|în afară de|exclud|fără|niciun|nicio",
        denied=(
            r"nu(?!\p{L})|(?:este|sunt)? ?(?:de asemenea )?(?:greșit[ăe]?|incorect[ăe]?|fals[ăe]?|"
            r"exclus[ăe]?)(?!\p{L})"
        ),
        fill=r"este|că|varianta|opțiunea|răspunsul|corect|cred|sigur",
        condition=r"dacă ",
        case=r"altfel",
        right=r"corect[ăe]?",
        yes=r"da|adevărat|corect[ăe]?",
        no=r"nu|fals|greșit[ăe]?|incorect[ăe]?",
        all_=r"toate|tot",
        none=r"niciuna|nimic",
        except_=r"cu excepția|în afară de|mai puțin|exceptând",
        revision=r"stai|nu,|de fapt|scuze|corectez|mai bine zis",
        also=r"și|de asemenea",
        possible=r"posibil[ăe]?|valabil[ăe]?|merge",
    ),
    "Hungarian": Language(
        answer=(
            r"(?:helyes |végső |jó )*(?:válasz|válaszom|"
            r"megoldás)(?-i:(?! az? \p{Ll}))(?: (?-i:a(?= [A-Z](?!\p{L}))))?|helyes (?:opció|"
            r"lehetőség)(?: (?-i:a(?= [A-Z](?!\p{L}))))?|a választásom"
        ),
        option=r"válasz|opció|lehetőség|betű",
        link=r"csak a|az",
        soft=r"valószínűleg|egyértelműen|biztosan|tehát",
        choose=r"szerintem|azt hiszem,?(?: hogy)?|úgy gondolom,?(?: hogy)?|választom(?: a)?|választásom(?: a)?",
        right_after=(
            r"(?:válasz |opció |lehetőség |betű )?(?:a |az )?(?:egyértelműen |leginkább |leg\p{L}+ )*"
            r"(?:helyes(?! (?:válasz|opció|lehetőség|megoldás))|(?<=(?-i:a) )helyes (?:válasz|opció|lehetőség)|"
            r"jó válasz|megfelelő|valószínűbb)(?!\p{L})|(?:-?[aeo]?t )?választ(?:om|anám)"
        ),
        therefore=r"tehát|ezért|vagyis|így|hanem|marad",
        perhaps=r"talán|valószínűleg|esetleg|lehet,? hogy",
        final=r"végső|végleges",
        join=r"vagy|és|meg|illetve",
        because=r"mert|mivel|hiszen|ugyanis",
        not_=r"nem|sem|kivéve|helyett|kizárom|vajon",
        denied=r"(?:válasz |opció |is |a |biztosan )*(?:nem|helytelen|hibás|rossz|hamis|kizárható)(?!\p{L})",
        fill=r"az|hogy|helyes|válasz",
        condition=r"ha ",
        right=r"helyes",
        yes=r"igen|igaz|helyes",
        no=r"nem|hamis|helytelen|nem igaz",
        all_=r"minden|mind|összes",
        revision=r"várj|nem,|bocsánat|pontosabban|valójában|javítok",
        also=r"szintén",
        possible=r"lehetséges|lehet|jó|megfelel\p{L}*",
        asks=r"vajon",
    ),
    "Bulgarian": Language(
        answer=(
            r"(?:верни\p{L}+ |правилни\p{L}+ |крайни\p{L}+ )*отговор(?:ът|а|ъ)?(?: ми)?|(?:верен|"
            r"правилен|верн\p{L}+|правилн\p{L}+) (?:вариант|опция|възможност|избор)"
        ),
        option=r"вариант\p{L}*|опция\p{L}*|буква\p{L}*|отговор\p{L}*",
        link=r"е|би трябвало да е|трябва да е|ще е",
        soft=r"вероятно|най-вероятно|очевидно|явно|вариант|опция|буква|е",
        choose=r"(?:аз )?избирам|бих избрал[а]?|(?:мисля|смятам|считам|предполагам)(?:,? че)?(?: отговорът)?(?: е)?",
        right_after=(
            r"(?:е|изглежда|са)(?: (?:най-|моят|явно))* ?(?:верен|верни\p{L}+|правил\p{L}+|вярн\p{L}+|верн\p{L}+|"
            r"отговор\p{L}*|най-\p{L}+)"
        ),
        therefore=r"това е|следователно|затова|значи|така че|трябва да е|остава",
        perhaps=r"може би|вероятно|навярно|сигурно",
        final=r"крайни\p{L}+|окончател\p{L}+",
        join=r"или|и|нито",
        because=r"защото|тъй като|понеже|е",
        not_=r"не|нито|освен|ако|вместо|без|изключвам|дали",
        denied=r"(?:е|са)? ?(?:също )?(?:не|греш\p{L}+|погреш\p{L}+|неправил\p{L}+|невер\p{L}+)(?!\p{L})",
        fill=r"е|че|вариант|отговорът|верният|мисля",
        condition=r"ако ",
        right=r"верен|правилен",
        yes=r"да|вярно|правилно|истина",
        no=r"не|грешно|невярно|неправилно",
        all_=r"всички|всичко",
        except_=r"освен|без",
        revision=r"чакай|не,|всъщност|поправка|извинявай\p{L}*",
        also=r"също|и",
        possible=r"възмож\p{L}+|върши работа|става",
        asks=r"дали|нима",
        asked=r"ли(?: е)?",
    ),
    "Croatian and Serbian": Language(
        answer=(
            r"(?:točan |tačan |ispravan |pravi |moj |konačan )*odgovor|(?:točna|tačna|ispravna) (?:opcija|"
            r"varijanta|tvrdnja)|rješenje|rešenje"
        ),
        option=r"opcij[aeu]|slovo|odgovor|varijanta",
        link=r"je|bi bio|mora biti|glasi",
        soft=r"vjerojatno|verovatno|očito|očigledno|sigurno|opcija|slovo|je|to",
        choose=(
            r"biram|odabrao bih|odabrala bih|izabrao bih|izabrala bih|(?:mislim|smatram|vjerujem|"
            r"verujem)(?:,? da)?(?: je)?(?: to)?(?: odgovor)?"
        ),
        right_after=(
            r"(?:je|se čini|su|izgleda)(?: (?:naj\p{L}+|moj|kao))* ?(?:točn\p{L}*|točan|tačn\p{L}*|tačan|"
            r"ispravn\p{L}+|ispravan|odgovor|najvjerojatnij\p{L}|najbolj\p{L})"
        ),
        therefore=r"to je|dakle|stoga|zato|prema tome|već|nego|znači",
        perhaps=r"možda|vjerojatno|verovatno|moglo bi biti",
        final=r"konačan|konačni",
        join=r"ili|i|te|ni|niti",
        because=r"jer|zato što|budući|pošto|na|u|je",
        not_=r"nije|ne|ni|niti|osim|ako|umjesto|umesto|nisu|isključujem",
        denied=(
            r"(?:je|su)? ?(?:također |takođe )?(?:nije|nisu|ne|netoč\p{L}+|netač\p{L}+|pogreš\p{L}+|"
            r"neisprav\p{L}+|krivo)(?!\p{L})"
        ),
        fill=r"je|da|to|opcija|odgovor|točan|mislim",
        condition=r"ako ",
        right=r"točan|tačan|ispravan",
        yes=r"da|točno|tačno|ispravno|istina",
        no=r"ne|netočno|netačno|pogrešno|neispravno|laž",
        all_=r"sve|svi|sva",
        except_=r"osim",
        revision=r"čekaj|ne,|zapravo|ispravak|oprosti\p{L}*",
        also=r"također|takođe|isto",
        possible=r"moguć\p{L}*|može|odgovara",
        asks=r"je li|da li",
    ),
    "Serbian in Cyrillic": Language(
        answer=(
            r"(?:тачан |исправан |прави |мој |коначан |коначни )*одговор|(?:тачна|исправна) (?:опција|варијанта|"
            r"тврдња)|решење|мој избор"
        ),
        option=r"опциј[аеу]|слово|одговор|варијант[ау]",
        link=r"је|би био|мора бити|гласи",
        soft=r"вероватно|очигледно|сигурно|опција|слово|је|то",
        choose=(
            r"бирам|изабрао бих|изабрала бих|одабрао бих|одабрала бих|(?:мислим|сматрам|верујем)(?:,? да)?(?: је)?"
            r"(?: то)?(?: (?:тачан )?одговор)?"
        ),
        right_after=(
            r"(?:је|чини се|изгледа)(?: (?:нај\p{L}+|мој|као))* ?(?:тачн\p{L}*|тачан|исправн\p{L}+|исправан|"
            r"одговор|највероватниј\p{L}|најбољ\p{L})"
        ),
        therefore=r"то је|дакле|стога|зато|према томе|већ|него|значи",
        perhaps=r"можда|вероватно|могло би бити",
        final=r"коначан|коначни",
        join=r"или|ни",
        because=r"јер|зато што|будући|пошто|на|у|је",
        not_=r"није|не|ни|нити|осим|ако|уместо|нису|искључујем",
        denied=(r"(?:је|су)? ?(?:такође )?(?:није|нису|не|нетач\p{L}+|погреш\p{L}+|неисправ\p{L}+|криво)(?!\p{L})"),
        fill=r"је|да|то|опција|одговор|тачан|мислим",
        condition=r"ако ",
        right=r"тачан|исправан",
        yes=r"да|тачно|исправно|истина",
        no=r"не|нетачно|погрешно|неисправно|лаж",
        all_=r"све|сви|сва",
        except_=r"осим",
        revision=r"чекај|не,|заправо|исправка|извини\p{L}*",
        also=r"такође|исто",
        possible=r"могућ\p{L}*|може|одговара",
        asks=r"је ли|да ли",
    ),
    "Bengali": Language(
        answer=r"(?:সঠিক |চূড়ান্ত |আমার )*(?:উত্তর|উত্তরটি|জবাব)|সঠিক (?:বিকল্প|অপশন)",
        option=r"বিকল্প|অপশন|উত্তর|অক্ষর",
        link=r"হল|হলো|হচ্ছে|হবে",
        soft=r"সম্ভবত|অবশ্যই|স্পষ্টতই|বিকল্প|অপশন|হল|হলো",
        choose=r"আমি(?= [A-Za-z])|আমার মতে|আমি মনে করি(?: এটি)?|আমার মনে হয়(?: এটি)?",
        right_after=(r"(?:ই |হল |হলো |সবচেয়ে )*(?:সঠিক|উত্তর|ঠিক|উপযুক্ত)(?! (?:নয়|না))|(?:কে |টি )?(?:বেছে|নির্বাচন)"),
        therefore=r"তাই|সুতরাং|অতএব|এটি|বরং",
        perhaps=r"সম্ভবত|হয়তো|হতে পারে",
        final=r"চূড়ান্ত",
        join=r"বা|অথবা|কিংবা|এবং|ও|আর",
        because=r"কারণ|যেহেতু|সঠিক|হবে|হল|হলো|বেছে|নির্বাচন",
        not_=r"না|নয়|যদি|ছাড়া|বাদে|পরিবর্তে",
        denied=r"(?:সঠিক |উত্তর |ও )*(?:নয়|ভুল|না)(?![\p{L}\p{M}])",
        fill=r"বিকল্প|উত্তর|সঠিক",
        condition=r"যদি ",
        right=r"সঠিক",
        yes=r"সঠিক|হ্যাঁ|সত্য|ঠিক",
        no=r"ভুল|না|মিথ্যা",
        all_=r"সব|সবগুলি|সকল|বাকি",
        except_after=r"ছাড়া|বাদে",
        revision=r"না,|দাঁড়ান|আসলে|দুঃখিত",
        also=r"ও",
        possible=r"সম্ভব|হতে পারে|সঠিক",
    ),
    "Catalan": Language(
        answer=r"respost(?:a|es)|(?:opció|lletra) (?:correcta|adequada)|la meva elecció",
        option=r"opció|opcions|lletra|resposta",
        link=r"és|seria|ha de ser|sembla(?: ser)?",
        soft=r"probablement|clarament|la|el|opció|lletra|correcta|és",
        choose=r"trio|triaria|escullo|escolliria|em quedo amb|crec que(?: és)?|diria que(?: és)?",
        right_after=(
            r"(?:és|seria|sembla|són) (?:(?:la|el|més|clarament|opció|resposta) )*(?:correct[ae]s?|certa|resposta|"
            r"millor|probable|adequada)"
        ),
        therefore=r"és|per tant|així que|sinó|doncs",
        perhaps=r"potser|probablement|possiblement",
        because=r"perquè|ja que|és|segons",
        not_=r"no|ni|tret de|llevat de|excepte|si|en lloc de|descarto|sense",
        denied=r"no (?:és|són|pot)|(?:és|són)? ?(?:incorrect[ae]s?|fals[ae]?|errònia)(?!\p{L})",
        fill=r"és|la|el|opció|que|resposta",
        condition=r"si ",
        right=r"correcta?",
        join=r"o|i",
        yes=r"sí|cert[a]?|vertader[a]?|correct[ae]?",
        no=r"no|fals[a]?|incorrect[ae]?",
        all_=r"tot|totes|tots",
        none=r"cap|res",
        except_=r"excepte|tret de|llevat de",
        revision=r"espera|perdó|de fet|més ben dit",
        also=r"també|igualment",
        possible=r"possibles?|vàlid\p{L}*",
    ),
    "Tagalog": Language(
        answer=r"(?:tamang |huling |aking )*(?:sagot|kasagutan)(?: ko)?|tamang (?:pagpipilian|opsyon|titik)|tama",
        option=r"opsyon|titik|pagpipilian|sagot",
        link=r"ay",
        soft=r"malamang|siguro|tiyak na|malinaw na|opsyon|titik",
        choose=r"pinipili ko(?: ang)?|pipiliin ko(?: ang)?|sa tingin ko(?:,? ay)?|palagay ko(?:,? ay)?",
        right_after=r"ang (?:tamang |pinaka\p{L}+ )?(?:sagot|tama|opsyon)(?!\p{L})|ay (?:tama|ang (?:tamang )?sagot)",
        therefore=r"kaya|samakatuwid|kung gayon|kundi",
        perhaps=r"marahil|siguro|baka|malamang",
        final=r"huling",
        join=r"o kaya|o|(?-i:at(?= [A-Z](?!\p{L})))",
        because=r"dahil|sapagkat|kasi|ang|ay",
        not_=r"hindi|maliban sa|kung|sa halip na|wala|hindi ang",
        denied=r"(?:ay )?(?:hindi|mali)(?!\p{L})",
        fill=r"ang|ay|opsyon|tamang|sagot",
        condition=r"kung ",
        right=r"tamang|tama",
        yes=r"oo|tama|totoo",
        no=r"hindi|mali",
        all_=r"lahat",
        except_=r"maliban sa",
        revision=r"sandali|teka|pasensya|ay mali",
        also=r"din|rin",
        possible=r"posible|maaari|tama",
    ),
}


def pattern_of(field: str) -> str:
    """The alternation of what all languages have in a field, whole words where words have spaces between them."""
    name = f"{field}_" if field in ("not", "all", "except") else field
    spaced = [words for language in LANGUAGES.values() if language.spaced and (words := getattr(language, name))]
    dense = [words for language in LANGUAGES.values() if not language.spaced and (words := getattr(language, name))]
    whole = rf"(?<![\p{{L}}\p{{M}}])(?:{'|'.join(spaced)})(?![\p{{L}}\p{{M}}])" if spaced else ""
    return f"(?:{'|'.join(filter(None, [whole, *dense]))})"


SOFTENERS = pattern_of("soft")
